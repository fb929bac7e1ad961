// Attention of NVFP4 operands by mma.sync, for sm_120 and sm_121 with suffix a or f. What a Config is, which ones are
// legal, and everything that follows from one. Planner and device code evaluate the same functions.
//
//   S = scale (q' . k' + delta_s)     O = softmax(S) v     lse = log-sum-exp of S, + scale row_shift
//
// of what attention_quantize made (spec/attention_quantize.h): q', k' and v as e2m1 with scales ue4m3 for 16 of them,
// delta_s and row_shift in fp32, which restore the scores of q and k before their means were taken out. Scores start
// from delta_s as their accumulators, so restoring takes no instruction.
//
// P becomes NVFP4 in registers, in two levels. Exponents are raised by log2(2688), so that a row's largest P is 448 *
// 6, the largest product of a scale and a value; then each 16 keys have a scale ue4m3(largest / 6), and P / scale is
// e2m1. The sum of a row is fp32 of P before that. The first level is in O and in the sum alike, and so cancels.
//
// A CTA takes tiles of tile_m queries of a head, one after the other, and walks over keys in steps of tile_n. Warp 0
// (load) fills a ring of `stages` slots, K, V and delta_s of a step each, by bulk copies: a tile of units is one
// piece of memory. The warps of the other warpgroups (consumer) have 16 rows each and meet nowhere but at the slots; Q
// comes from global memory to registers. A finished tile's 16 rows of O go to bytes that only this warp uses, and from
// there by TMA, which reads them beside the next tile's products. Rows of a ragged sequence that fill no box of 16
// leave from registers: behind them begins the next sequence. So do parts of split keys.
//
// The map of o: dims {head_dim, max(seqlen_q, 1), heads_q, max(batch, 1)}, of ragged queries one sequence; strides
// {seqlen, head, batch}; boxes {o_span_elements, 16, 1, 1}, swizzled by 128 bytes; type o_dtype, f32 un-normalised.
//
// Logits are what other families make of scores (templates/attention): capped, lowered by distance, hidden by a tree.
// All of these but a cap know nothing of what all keys of a row have in common, so row_shift is added behind the
// softmax: to lse, to the maximum, and to what a sink's logit is compared with. A cap needs it before: then row_shift
// is added to each score, and nowhere else.
//
// Split keys: num_splits CTAs share a tile's blocks of keys and leave O and sums in a workspace, as un-normalised
// output has them: relative to a row's largest logit, the first level taken out again. templates/attention/merge.cuh
// joins them.
//
// Sequences are those of the kernel that quantised (templates/attention/nvfp4_sequences.cuh): queries dense or ragged,
// keys dense or ragged, both with used lengths or without. Tiles of ragged queries are numbered as their blocks are.
// Of dense queries those behind a used length see no key and have no block; their rows of O and sums are stored.
//
// Entry parameters, in this order: const void *q, *k, *v; const float *delta_s, *row_shift; const __grid_constant__
// TensorMap o; void* o_rows, the same tensor (q_layout ragged only); float* lse (may be null); float *row_max, *row_sum
// (output unnormalized only); const int *cu_seqlens_q (q_layout ragged only),
// *cu_seqlens_k (kv_layout ragged only), *seqused_q (seqused qk only), *seqused_k (seqused k, qk); const float *sink
// (sink per_head only, may be null), *alibi_slopes (alibi per_head only); const unsigned* tree_mask, int tree_words
// (tree_mask bits only); int batch, heads_q, heads_kv, seqlen_q, seqlen_k; int tokens_k (kv_layout ragged only); int
// attention_chunk (window chunked only); int window_size_left, window_size_right (window sliding only); long long
// o_stride_head, o_stride_seqlen (q_layout ragged only); float softmax_scale; float softcap (softcap tanh only). Split
// keys: in place of o, lse, row_max, row_sum, sink, o_rows and strides the entry has float* partial_o
// [num_splits][rows] [head_dim], float* partial_sums [num_splits][rows][2], and behind seqlen_k int num_splits. Launch:
// grid {min(ctas_per_sm() * num_sms, tiles (* num_splits))}, block num_threads(), smem_layout().total_bytes of shared
// memory.
#pragma once

#include "spec/attention_facts.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/nvfp4_units.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::fmha_nvfp4 {

using common::BarrierRow;
using common::Role;
using common::SmemRegion;

// q, k and v are NVFP4, of which facts have no name: dtype, kv_dtype and o_dtype are all that of a normalised o.
struct Config {
  AttentionFacts facts;
  SplitKv split_kv = SplitKv::off;  // off or on
  int tile_m = 128;
  int tile_n = 128;
  int stages = 3;
  int pack_gqa = 1;  // query heads that share a tile: a block of queries under one mean is of one head

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The facts that these kernels read. Any other must be as usual: one that is new is refused until it stands here.
TESSERA_HD constexpr AttentionFacts read_facts(const AttentionFacts& f) {
  return {.head_dim = f.head_dim,
          .head_dim_v = f.head_dim,
          .dtype = f.dtype,
          .mask = f.mask,
          .window = f.window,
          .seqused = f.seqused,
          .kv_layout = f.kv_layout,  // dense or ragged: keys in pages become dense where they are quantised
          .sink = f.sink,
          .softcap = f.softcap,
          .alibi = f.alibi,
          .tree_mask = f.tree_mask,
          .output = f.output,
          .q_layout = f.q_layout,
          .kv_dtype = f.dtype,
          .split_size = f.split_size,
          .o_dtype = f.dtype};
}

inline constexpr int kMaxStages = 8;
inline constexpr int kRowsOfWarp = 16;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  head_dim_not_64_or_128,  // head_dim; 128
  o_dtype_not_16_bit,      // bytes of an element of o; 2
  keys_paged,              // 1; 0
  fact_not_read,           // 1; 0
  ragged_queries_used,     // 1; 0
  keys_dealt,              // 1; 0
  part_not_of_blocks,      // split_size; tile_n
  part_without_split,      // split_size; 0
  tile_m_not_64_or_128,    // tile_m; 128
  tile_n_not_64_or_128,    // tile_n; 128
  stages_out_of_range,     // stages; 8
  heads_packed,            // pack_gqa; 1
  shared_memory_exceeded,  // bytes; 101,376
};

TESSERA_HD constexpr bool is_split(const Config& c) { return c.split_kv != SplitKv::off; }
// Whether O leaves as fp32 sums relative to a row's largest logit.
TESSERA_HD constexpr bool stores_sums(const Config& c) { return is_split(c) || c.facts.output == Output::unnormalized; }

TESSERA_HD constexpr int consumer_warps(const Config& c) { return c.tile_m / kRowsOfWarp; }
TESSERA_HD constexpr int num_threads(const Config& c) { return kWarpgroupThreads + 32 * consumer_warps(c); }
// Instructions along the columns of Q and K; units of a step; columns of 8 of O.
TESSERA_HD constexpr int score_steps(const Config& c) { return c.facts.head_dim / nvfp4::kDepth; }
TESSERA_HD constexpr int units_of_step(const Config& c) { return c.tile_n / nvfp4::kKeysOfUnit; }

// Of a slot.
TESSERA_HD constexpr int key_slot_bytes(const Config& c) {
  return units_of_step(c) * nvfp4::key_unit_bytes(c.facts.head_dim);
}
TESSERA_HD constexpr int delta_slot_bytes(const Config& c) { return c.tile_n * 4; }
TESSERA_HD constexpr int slot_bytes(const Config& c) { return 2 * key_slot_bytes(c) + delta_slot_bytes(c); }

// O's way out: whether by TMA, through panels of one swizzle span, [16 rows][128 bytes], of which a warp has as many as
// there is room for, and stores in as many passes.
TESSERA_HD constexpr bool stores_boxes(const Config& c) { return !is_split(c); }
inline constexpr int kPanelBytes = kRowsOfWarp * swizzle_span_bytes(Swizzle::b128);
TESSERA_HD constexpr int o_bytes(const Config& c) { return stores_sums(c) ? 4 : dtype_bytes(c.facts.o_dtype); }
TESSERA_HD constexpr int o_span_elements(const Config& c) { return swizzle_span_bytes(Swizzle::b128) / o_bytes(c); }
TESSERA_HD constexpr int o_panels(const Config& c) { return c.facts.head_dim / o_span_elements(c); }
TESSERA_HD constexpr int panels_of_pass(const Config& c) { return o_panels(c) < 2 ? o_panels(c) : 2; }
TESSERA_HD constexpr int o_slot_bytes(const Config& c) { return panels_of_pass(c) * kPanelBytes; }

struct SmemLayout {
  SmemRegion o;  // [consumer warp][panel]
  SmemRegion k, v, delta_s, barriers;
  int total_bytes = 0;
};
TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.o = {"o", 0, stores_boxes(c) ? consumer_warps(c) * o_slot_bytes(c) : 0};
  layout.k = {"k", common::end_of(layout.o), c.stages * key_slot_bytes(c)};
  layout.v = {"v", common::end_of(layout.k), c.stages * key_slot_bytes(c)};
  layout.delta_s = {"delta_s", common::end_of(layout.v), c.stages * delta_slot_bytes(c)};
  layout.barriers = {"barriers", common::end_of(layout.delta_s), 2 * 8 * c.stages};
  layout.total_bytes = common::end_of(layout.barriers);
  return layout;
}
// Full barriers, and empty ones behind them.
TESSERA_HD constexpr BarrierRow full_barriers(const Config& c) { return {0, smem_layout(c).barriers.offset, 0}; }

inline constexpr int kSmSmemBytes = 102400, kReservedSmemBytes = 1024;  // of a multiprocessor; of each CTA there
// Two small ones fill a multiprocessor's schedulers as one large one does.
TESSERA_HD constexpr int ctas_per_sm(const Config& c) {
  return c.tile_m <= 64 && 2 * (smem_layout(c).total_bytes + kReservedSmemBytes) <= kSmSmemBytes ? 2 : 1;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  const auto is_tile = [](int rows) { return rows == 64 || rows == 128; };
  if (!nvfp4::is_head_dim(c.facts.head_dim)) return {Rule::head_dim_not_64_or_128, c.facts.head_dim, 128};
  if (c.facts.o_dtype != DType::bf16 && c.facts.o_dtype != DType::f16)
    return {Rule::o_dtype_not_16_bit, dtype_bytes(c.facts.o_dtype), 2};
  if (c.facts.kv_layout == KvLayout::paged) return {Rule::keys_paged, 1, 0};
  if (c.facts.q_layout == QueryLayout::ragged && c.facts.seqused == UsedLengths::qk)
    return {Rule::ragged_queries_used, 1, 0};
  if (c.facts != read_facts(c.facts)) return {Rule::fact_not_read, 1, 0};
  if (!is_tile(c.tile_m)) return {Rule::tile_m_not_64_or_128, c.tile_m, 128};
  if (!is_tile(c.tile_n)) return {Rule::tile_n_not_64_or_128, c.tile_n, 128};
  if (c.split_kv == SplitKv::dealt) return {Rule::keys_dealt, 1, 0};
  if (c.facts.split_size < 0 || c.facts.split_size % c.tile_n != 0)
    return {Rule::part_not_of_blocks, c.facts.split_size, c.tile_n};
  if (c.facts.split_size > 0 && !is_split(c)) return {Rule::part_without_split, c.facts.split_size, 0};
  if (c.stages < 1 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.pack_gqa != 1) return {Rule::heads_packed, c.pack_gqa, 1};
  if (smem_layout(c).total_bytes > kMaxSmemBytesOfSm120)
    return {Rule::shared_memory_exceeded, smem_layout(c).total_bytes, kMaxSmemBytesOfSm120};
  return {};
}

// Registers of a thread: as launched, and as setmaxnreg deals them out anew.
struct RegisterBudget {
  int entry = 0;
  int producer = 0;
  int consumer = 0;
};
TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  if (c.tile_m == 128) return {168, 40, 232};
  return ctas_per_sm(c) == 2 ? RegisterBudget{128, 40, 216} : RegisterBudget{255, 255, 255};
}

inline constexpr int kNumRoles = 3;
TESSERA_HD constexpr Role role(const Config& c, int i) {
  const RegisterBudget budget = register_budget(c);
  if (i == 2) return {"consumer", 4, consumer_warps(c), budget.consumer};
  return i == 0 ? Role{"load", 0, 1, budget.producer} : Role{"idle", 1, 3, budget.producer};
}

}  // namespace tessera::fmha_nvfp4
