// Attention over keys that are values too, on Hopper: what a Config is, which ones are legal, and everything that
// follows from one. Planner and device code evaluate the same functions.
//
//   q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, 1, head_dim]; v is the first head_dim_v columns of k;
//   o [batch, seqlen_q, heads_q, head_dim_v]; s = softmax_scale * q k^T, masked; o = softmax(s) v.
//
// All heads of a query share the one key head: its rows are [query][head], 64 of them a tile. A key is loaded once and
// multiplied twice: K-major in S = Q K^T, and the same bytes of shared memory MN-major in O += P V.
//
// O has 64 x 512 fp32 values, twice what a warpgroup's registers bear, so both consumer warpgroups have the same 64
// rows and one half of O's columns each. Scores are computed once: of a pair of key blocks the first warpgroup has
// those of the first, the second those of the second. Each hands its P to the other through shared memory, where the
// block's columns that only S needs have done their duty. References (attention's running maxima) go along with P.
//
// Shared tiles are panels of one swizzle span of 128 bytes: [columns / 64][64 rows][128 bytes]. A block of 64 keys is 9
// panels, each of which is a box of the tensor map with a barrier of its own; there are two slots, one for each block
// of a pair.
//
// 8-bit keys (kv_dtype e4m3) stay bytes in shared memory, in three to five slots. Consumers widen them on the way to
// registers, where they are A of S^T = K Q^T and of O^T = V^T P^T: fmha_latent/transposed.cuh.
//
// Tensor maps, with interleave none, element strides 1, zero fill, L2 promotion of 128 bytes, swizzle 128B; q as of
// packed heads and k as in spec/fmha.h, boxes q_box and k_box. 8-bit keys have 64B, and panels of 64 bytes.
//
// Entry parameters, in this order:
//   const __grid_constant__ TensorMap q, k
//   void* o
//   float* lse          [batch, heads_q, seqlen_q] dense, may be null
//   int* seqused_k      [batch], valid keys: with seqused k only
//   int batch, heads_q, heads_kv, seqlen_q, seqlen_k
//   float softmax_scale
//   int* block_table, int pages, max_pages: keys in pages
//   float* k_descale    [batch, heads_kv], factor of k, which v is a part of; may be null, which is 1: 8-bit keys
//   long long k_descale_stride_batch, k_descale_stride_head: likewise
//   long long o_stride_head, o_stride_seqlen, o_stride_batch
// Keys in pages: k [pages, page_size, 1, head_dim] is a pool, int* block_table [batch, max_pages] lists the pages of
// each sequence, of which seqused_k keys are valid. An entry that is read and is no page of the pool stands for zeros;
// those behind a sequence's last page are not read. With dealt keys, behind the valid lengths,
//   float* partial_o    [2 * CTAs][min(64, rows of a sequence)][head_dim_v], un-normalised
//   float* partial_sums [2 * CTAs][min(64, rows of a sequence)][2]: the reference times log2(e), the sum
//   int* tails          [CTAs][2]: where joins_tails()
// The kernel that merges has the same parameters, and behind them int num_ctas, the number of ranges.
// Two pools of keys (kv_pools sparse_window), head_dim 576 or 512: each query has a list of rows of its own, and a
// window; what is called a sequence above and below is a query then, whose rows are its heads, of any number. k
// [seqlen_k, head_dim] are rows that queries list, threads gather them, there is no map of k and none of the valid
// lengths above. Of a block two groups of panels, those that a warpgroup multiplies as V each, have a barrier, and the
// columns that only S needs one. Behind lse (and the parts) come
//   void* swa_k         [batch, swa_rows, 1, head_dim], the window
//   int* indices        [batch, seqlen_q, topk]; int* topk_lens [batch, seqlen_q], may be null; int* swa_lens [batch]
//   int* swa_indices    [batch, seqlen_q, seqlen_swa], may be null; float* sink [heads_q], may be null
//   int topk, seqlen_swa, swa_rows
// and behind softmax_scale
//   void* k_keys        k
//   long long k_stride_seqlen, swa_k_stride_seqlen, swa_k_stride_batch, in elements
// fmha_latent/gather.cuh says how they come. From a cache (kv_cache, spec/attention_cache.h) k is bytes, pages of
// page_size tokens, swa_k [batch][pages] likewise, and the strides, in bytes, are
//   long long k_stride_page, swa_k_stride_page, swa_k_stride_batch
// Its values are widened on the way, in registers: fmha_latent/gather_cache.cuh.
// Tiles of a sequence are tiles = ceil_div(seqlen_q * pack_gqa, 64); each has a CTA of its own, and those of a sequence
// run side by side, so that they share its keys in the L2.
// Launch: grid {tiles * ranges, 1, 1} with ranges = min(max(num_sms / tiles, 1), batch): each range of CTAs has as many
// sequences as the others; where keys are dealt, as many pairs of key blocks, and ranges are at most all sequences'
// pairs. block {384, 1, 1}, dynamic shared memory smem_layout().total_bytes, clusters of tiles_of_cluster(). Dealt
// keys: a workspace for the parts, and a second step of a warp for each row of each tile of each cut between two
// ranges, which is launched with programmatic stream serialization and waits for the first itself, as the first does
// for what is before it. Behind the parts two words of each CTA in the workspace, which holds anything at first
// (joins_tails()). Domain: heads_kv 1, heads_q = pack_gqa.
#pragma once

#include "spec/attention_cache.h"
#include "spec/attention_facts.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/wgmma_shape.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::fmha_latent {

using common::barrier_at;
using common::BarrierRow;
using common::Role;
using common::row_at;
using common::SmemRegion;

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  AttentionFacts facts{.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on};
  int tile_m = 64;  // rows of a CTA; a row is a head of a query; of 8-bit keys 16 and 32 too
  int tile_n = 64;  // keys of a block
  int stages = 2;   // slots for blocks: a pair's; of 8-bit keys 3 to 5
  Swizzle swizzle = Swizzle::b128;
  MmaKind mma_kind = MmaKind::wgmma_f16;
  int pack_gqa = 128;               // query heads, all of which share the key head
  SplitKv split_kv = SplitKv::off;  // dealt: ranges of CTAs have equal numbers of key blocks, a second kernel merges

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The facts that these kernels read. Any other must be as usual: one that is new is refused until it stands here.
TESSERA_HD constexpr AttentionFacts read_facts(const AttentionFacts& f) {
  return {.head_dim = f.head_dim,
          .head_dim_v = f.head_dim_v,
          .dtype = f.dtype,
          .mask = f.mask,
          .seqused = f.seqused,
          .kv_pools = f.kv_pools,
          .kv_layout = f.kv_layout,
          .page_size = f.page_size,
          .sink = f.sink,
          .v_is_k = f.v_is_k,
          .kv_dtype = f.kv_dtype,
          .o_dtype = f.dtype,
          .kv_cache = f.kv_cache};
}

inline constexpr int kRows = 64;  // of a tile (wgmma M)
inline constexpr int kRowsOfMergeWarp = 4;
inline constexpr int kBlockKeys = 64;  // columns of S; P fits where a panel of the block was
inline constexpr int kPairKeys = 2 * kBlockKeys;
// Blocks that are on their way to the L2 before there is a slot for them: one. Lines that are brought there earlier are
// thrown out before they are read: with four, 128 heads and 128 sequences of 4,096 keys read 970 MB from memory in
// place of 632 (H100). Microseconds there for none, 1, 2 and 4 ahead, in clusters: 274 263 282 380; of 8,192 keys 512
// 485 516 708.
// Not where one tile alone reads a sequence's keys and memory is the bound: with them (and a few other changes) 16
// heads, 128 sequences of 4,096 keys, took 199 us in place of 161.
inline constexpr int kBlocksAhead = 1;
inline constexpr int kHeadDim = 576;
inline constexpr int kHeadDimOfPools = 512;  // the other one that keys of pools may have
inline constexpr int kHeadDimV = 512;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  v_is_not_k,               // 0; 1
  dtype_not_16_bit,         // bytes of the type; 2
  key_dtype_unknown,        // bytes of the type; 1 (e4m3)
  head_dim_not_latent,      // head_dim; 576
  head_dim_not_of_pools,    // head_dim; 512 (the other one is 576)
  head_dim_v_not_latent,    // head_dim_v; 512
  tile_m_not_64,            // tile_m; 64 (wgmma M: O of more rows finds no registers)
  tile_m_not_of_rows,       // tile_m; 64 (wgmma N, of 8-bit keys: the others are 16 and 32)
  tile_n_not_64,            // tile_n; 64 (P takes the place of a panel of its block)
  stages_not_of_pair,       // stages; 2 (a pair of blocks), or slots() of 8-bit keys
  swizzle_not_128b,         // bytes of the span; 128
  pack_gqa_not_of_tiles,    // pack_gqa; rows of a tile (a tile is whole queries, or a query whole tiles)
  window_sliding,           // 1; 0
  output_unnormalized,      // 1; 0
  queries_ragged,           // 1; 0
  lengths_of_queries,       // 1; 0 (seqused qk)
  keys_without_places,      // 1; 0 (ragged keys)
  pools_beside_places,      // 1; 0 (keys in pages, lengths of keys)
  pools_of_8_bits,          // bytes of the type; 2
  cache_without_pools,      // 1; 0
  head_dim_not_of_cache,    // head_dim; columns of a token
  cache_not_beside_bf16,    // 1; 0
  page_size_unknown,        // page_size; 256 (kPageSizes)
  page_size_without_pages,  // page_size; 0
  page_too_small_for_tma,   // page_size; 8 (rows of a swizzle's pattern)
  pages_without_lengths,    // 0; 1 (seqused k: where a sequence ends in its last page)
  split_by_number,          // 1; 0 (split_kv on)
  fact_not_read,            // 1; 0
  shared_memory_exceeded,   // bytes; 232,448
};

TESSERA_HD constexpr bool prefetches(const Config& c) { return c.pack_gqa > c.tile_m; }
// Whether threads gather keys from two pools.
TESSERA_HD constexpr bool gathers(const Config& c) { return has_pools(c.facts); }
// Tiles of a sequence whose CTAs are a cluster. Where they do not share keys they are near each other, and what one of
// them reads the other finds in its part of the L2 (H100, 128 heads: 1 to 5 % faster).
TESSERA_HD constexpr int tiles_of_cluster(const Config& c) {
  const int tiles = (c.pack_gqa + c.tile_m - 1) / c.tile_m;
  return (gathers(c) ? tiles : c.pack_gqa / c.tile_m) % 2 == 0 && c.pack_gqa > c.tile_m ? 2 : 1;
}
// Whether each of those CTAs loads every second panel of 16-bit keys, for both.
TESSERA_HD constexpr bool multicasts(const Config& c) {
  return !gathers(c) && !widens_keys(c.facts) && tiles_of_cluster(c) == 2;
}
// Whether a slot is one for both: they multicast, or widen half of a cache's keys each.
TESSERA_HD constexpr bool shares_keys(const Config& c) {
  return (has_cache(c.facts) && tiles_of_cluster(c) == 2) || multicasts(c);
}
TESSERA_HD constexpr bool is_dealt(const Config& c) { return c.split_kv == SplitKv::dealt; }
TESSERA_HD constexpr bool widens(const Config& c) { return widens_keys(c.facts); }
// Whether the CTA that has a cut sequence's first keys adds the rest to them, if one other CTA has it and has it done
// by then: tails.cuh. Else, and where this says no, the second step does.
TESSERA_HD constexpr bool joins_tails(const Config& c) { return is_dealt(c) && !gathers(c) && !widens(c); }
inline constexpr int kTailWords = 2;  // of a CTA in the workspace
// For blocks of keys. Bytes are half as long, and fewer rows of Q and P leave room: as many as there is.
TESSERA_HD constexpr int slots(const Config& c) { return !widens(c) ? 2 : c.tile_m <= 16 ? 5 : c.tile_m <= 32 ? 4 : 3; }

inline constexpr int kSpanBytes = 128;
inline constexpr int kSpanElements = kSpanBytes / 2;
inline constexpr int kPanelBytes = 64 * kSpanBytes;  // 64 rows of Q or keys
inline constexpr int kPanels = kHeadDim / kSpanElements;
TESSERA_HD constexpr int panels(const Config& c) { return c.facts.head_dim / kSpanElements; }
inline constexpr int kPanelsOfHalf = kHeadDimV / kSpanElements / 2;  // that a warpgroup multiplies as V
inline constexpr int kPanelOfP = kHeadDimV / kSpanElements;          // which is no V
inline constexpr int kSlotBytes = kPanels * kPanelBytes;             // with room for P, whatever head_dim is
TESSERA_HD constexpr int q_panel_bytes(const Config& c) { return c.tile_m * kSpanBytes; }
TESSERA_HD constexpr int q_bytes(const Config& c) { return panels(c) * q_panel_bytes(c); }
// P of a block of 8-bit keys, as B of O^T: [64 keys][rows], f16, a span all rows.
TESSERA_HD constexpr Swizzle p_swizzle(const Config& c) {
  return c.tile_m == 16 ? Swizzle::b32 : c.tile_m == 32 ? Swizzle::b64 : Swizzle::b128;
}
TESSERA_HD constexpr int p_bytes(const Config& c) { return kBlockKeys * 2 * c.tile_m; }
inline constexpr int kRawSpanBytes = kSpanElements;  // of 8-bit keys
inline constexpr int kRawPanelBytes = kBlockKeys * kRawSpanBytes;
TESSERA_HD constexpr int loaded_panel_bytes(const Config& c) { return widens(c) ? kRawPanelBytes : kPanelBytes; }
TESSERA_HD constexpr int slot_bytes(const Config& c) { return kPanels * loaded_panel_bytes(c); }
inline constexpr int kConsumers = 2;
inline constexpr int kWarpsOfConsumer = kWarpgroupThreads / 32;
inline constexpr int kGatherWarps = 4;  // of the producer warpgroup: keys of pools
inline constexpr int kKeysOfWarp = kBlockKeys / kGatherWarps;
inline constexpr int kThreads = (kConsumers + 1) * kWarpgroupThreads;

struct SmemLayout {
  SmemRegion q;           // [panels][64][span]
  SmemRegion k;           // [slots][panels][64][span]; P in the last panel
  SmemRegion p;           // 8-bit keys: [parity of the pair][block of it][64 keys][rows], f16
  SmemRegion references;  // [2][64] fp32, of the blocks' P; 8-bit keys: [64] limits, subtrahends, scales
  SmemRegion factors;     // 8-bit keys: [parity of the pair][block of it][64] fp32, of O where a block moved references
  SmemRegion marks;       // 8-bit keys: [parity of the pair][block of it] whether it moved them, [2] the last pair in
                          // which a warp asked for it
  SmemRegion maxima;      // 8-bit keys: [consumer warpgroup][warp][64] fp32, of a block's scores
  SmemRegion sums;        // [consumer warpgroup][64] fp32; 8-bit keys: [consumer warpgroup][warp][64]
  SmemRegion tail;        // whether the next range's part is added here: a word, of 8 bytes for what lies behind
  SmemRegion present;     // [2][4 warps] words: which of the 16 keys that a warp gathered are there
  SmemRegion barriers;    // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow q_full;
  BarrierRow q_empty;
  BarrierRow k_full;  // [slot][full_barriers()]: a panel, or a group of panels that are gathered
  BarrierRow
      k_empty;        // [slot][consumer warpgroup]: that one, of all CTAs that share keys, reads nothing there any more
  BarrierRow p_full;  // [block of a pair]: P and its references are there
  int count = 0;      // of all
};
// Of a slot; and which of them a panel has.
inline constexpr int kGroups = 3;
TESSERA_HD constexpr int full_barriers(const Config& c) { return gathers(c) ? kGroups : kPanels; }
TESSERA_HD constexpr int full_of_panel(const Config& c, int panel) {
  return gathers(c) ? panel / kPanelsOfHalf : panel;
}
// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.q_full = cursor.take(1);
  b.q_empty = cursor.take(1);
  b.k_full = cursor.take(slots(c) * full_barriers(c));
  b.k_empty = cursor.take(slots(c) * kConsumers);
  b.p_full = cursor.take(2);
  b.count = cursor.next.index;
  return b;
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.q = {"q", 0, q_bytes(c)};
  layout.k = {"k", end_of(layout.q), slots(c) * slot_bytes(c)};
  layout.p = {"p", end_of(layout.k), widens(c) ? 4 * p_bytes(c) : 0};
  layout.references = {"references", end_of(layout.p), (widens(c) ? 3 : 2) * kRows * 4};
  layout.factors = {"factors", end_of(layout.references), widens(c) ? 4 * kRows * 4 : 0};
  layout.marks = {"marks", end_of(layout.factors), widens(c) ? 6 * 4 : 0};
  layout.maxima = {"maxima", end_of(layout.marks), widens(c) ? kConsumers * kWarpsOfConsumer * kRows * 4 : 0};
  layout.sums = {"sums", end_of(layout.maxima), kConsumers * (widens(c) ? kWarpsOfConsumer : 1) * kRows * 4};
  layout.tail = {"tail", end_of(layout.sums), joins_tails(c) ? 8 : 0};
  layout.present = {"present", end_of(layout.tail), gathers(c) ? 2 * kGatherWarps * 4 : 0};
  layout.barriers = {"barriers", end_of(layout.present), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

// Registers per thread: at entry, as __launch_bounds__ deals them, and after setmaxnreg.
struct RegisterBudget {
  int entry = 168;
  int producer = 40;
  int consumer = 232;
};
// Warps that gather need more than those that load, and those that widen what they gathered, which is in their
// registers until then, most.
TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  if (has_cache(c.facts) && c.facts.kv_cache == KvCache::mla_656 && shares_keys(c)) return {168, 104, 200};
  if (has_cache(c.facts)) return {168, 120, 192};
  if (gathers(c)) return {168, 72, 216};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_pages(const AttentionFacts& facts) {
  const int keys = facts.page_size;
  if (facts.kv_layout != KvLayout::paged) {
    if (keys != 0 && facts.kv_cache == KvCache::rows) return {Rule::page_size_without_pages, keys, 0};
    return {};
  }
  if (!is_page_size(keys)) return {Rule::page_size_unknown, keys, 256};
  if (keys < 8) return {Rule::page_too_small_for_tma, keys, 8};
  if (facts.seqused == UsedLengths::none) return {Rule::pages_without_lengths, 0, 1};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_cache(const Config& c) {
  const int columns = cache_columns(cache_of(c.facts));
  if (!gathers(c)) return {Rule::cache_without_pools, 1, 0};
  if (c.facts.head_dim != columns) return {Rule::head_dim_not_of_cache, c.facts.head_dim, columns};
  if (c.facts.dtype != DType::bf16) return {Rule::cache_not_beside_bf16, 1, 0};
  if (!is_page_size(c.facts.page_size)) return {Rule::page_size_unknown, c.facts.page_size, 256};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  const AttentionFacts& facts = c.facts;
  if (facts.v_is_k != VIsK::on) return {Rule::v_is_not_k, 0, 1};
  if (facts.dtype != DType::f16 && facts.dtype != DType::bf16) {
    return {Rule::dtype_not_16_bit, dtype_bytes(facts.dtype), 2};
  }
  if (facts.kv_dtype != facts.dtype && facts.kv_dtype != DType::e4m3) {
    return {Rule::key_dtype_unknown, dtype_bytes(facts.kv_dtype), 1};
  }
  if (gathers(c) && facts.head_dim != kHeadDim && facts.head_dim != kHeadDimOfPools) {
    return {Rule::head_dim_not_of_pools, facts.head_dim, kHeadDimOfPools};
  }
  if (!gathers(c) && facts.head_dim != kHeadDim) return {Rule::head_dim_not_latent, facts.head_dim, kHeadDim};
  if (facts.head_dim_v != kHeadDimV) return {Rule::head_dim_v_not_latent, facts.head_dim_v, kHeadDimV};
  if (!widens(c) && c.tile_m != kRows) return {Rule::tile_m_not_64, c.tile_m, kRows};
  if (widens(c) && c.tile_m != 16 && c.tile_m != 32 && c.tile_m != kRows) {
    return {Rule::tile_m_not_of_rows, c.tile_m, kRows};
  }
  if (c.tile_n != kBlockKeys) return {Rule::tile_n_not_64, c.tile_n, kBlockKeys};
  if (c.stages != slots(c)) return {Rule::stages_not_of_pair, c.stages, slots(c)};
  if (c.swizzle != Swizzle::b128) return {Rule::swizzle_not_128b, swizzle_span_bytes(c.swizzle), kSpanBytes};
  const int heads = c.pack_gqa;
  const bool has_whole_tiles = heads >= 1 && (heads <= c.tile_m ? c.tile_m % heads == 0 : heads % c.tile_m == 0);
  if (heads < 1 || heads > 1024 || (!gathers(c) && !has_whole_tiles)) {
    return {Rule::pack_gqa_not_of_tiles, heads, c.tile_m};
  }
  if (facts.window != Window::none) return {Rule::window_sliding, 1, 0};
  if (facts.output != Output::normalized) return {Rule::output_unnormalized, 1, 0};
  if (facts.q_layout != QueryLayout::dense) return {Rule::queries_ragged, 1, 0};
  if (facts.seqused == UsedLengths::qk) return {Rule::lengths_of_queries, 1, 0};
  if (facts.kv_layout == KvLayout::ragged) return {Rule::keys_without_places, 1, 0};
  if (gathers(c) && (facts.kv_layout != KvLayout::dense || facts.seqused != UsedLengths::none)) {
    return {Rule::pools_beside_places, 1, 0};
  }
  if (gathers(c) && widens(c)) return {Rule::pools_of_8_bits, dtype_bytes(facts.kv_dtype), 2};
  if (has_cache(facts)) {
    const Verdict<Rule> of_cache = why_invalid_cache(c);
    if (!of_cache.ok()) return of_cache;
  }
  const Verdict<Rule> of_pages = why_invalid_pages(facts);
  if (!of_pages.ok()) return of_pages;
  if (c.split_kv == SplitKv::on) return {Rule::split_by_number, 1, 0};
  if (facts != read_facts(facts)) return {Rule::fact_not_read, 1, 0};
  const int bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

inline constexpr int kWarpOfK = 0;  // of the producer warpgroup
inline constexpr int kWarpOfQ = 1;
inline constexpr int kWarpOfSecondHalf = 2;  // of a slot's panels

TESSERA_HD constexpr int num_roles(const Config& c) { return gathers(c) ? 2 : 5; }
TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  if (gathers(c) && index == 0) return {"gather", 0, kGatherWarps, budget.producer};
  if (gathers(c)) index = 4;
  switch (index) {
    case 0:
      return {"load_k", kWarpOfK, 1, budget.producer};
    case 1:
      return {"load_q", kWarpOfQ, 1, budget.producer};
    case 2:
      return {"load_k_second", kWarpOfSecondHalf, 1, budget.producer};
    case 3:
      return {"idle", 3, 1, budget.producer};
    default:
      return {"consumer", 4, 4 * kConsumers, budget.consumer};
  }
}

using TmaBox = common::TmaBox<5>;

// Heads of a query that lie in one tile; of pools, whose tiles have one query, rows without a head are zeros.
TESSERA_HD constexpr int heads_of_tile(const Config& c) {
  return c.pack_gqa < c.tile_m && !gathers(c) ? c.pack_gqa : c.tile_m;
}
// {span, heads, queries, 1 key head, 1 batch}.
TESSERA_HD constexpr TmaBox q_box(const Config& c) {
  return {{kSpanElements, heads_of_tile(c), c.tile_m / heads_of_tile(c), 1, 1}};
}
// Keys of a block that lie side by side: all, or those of a page.
TESSERA_HD constexpr int box_keys(const Config& c) {
  return tessera::box_keys(c.facts.kv_layout, c.facts.page_size, kBlockKeys);
}
// {span, keys, 1 panel, 1 head, 1 batch or page}.
TESSERA_HD constexpr TmaBox k_box(const Config& c) { return {{kSpanElements, box_keys(c), 1, 1, 1}}; }

// S = Q K^T, a panel; O += P V with a warpgroup's own P, which it has in registers, and with the other one's. Of 8-bit
// keys S^T = K Q^T, half a panel, and O^T += V^T P^T, 16 keys, with any P.
TESSERA_HD constexpr WgmmaShape score_wgmma(const Config& c) {
  if (widens(c)) return {c.tile_m, DType::f16, true, false, kSpanElements / 32, false, DType::f16};
  return {kBlockKeys, c.facts.dtype, false, false, kSpanElements / 16, false, c.facts.dtype};
}
TESSERA_HD constexpr WgmmaShape own_wgmma(const Config& c) {
  if (widens(c)) return {c.tile_m, DType::f16, true, true, 1, false, DType::f16};
  return {kHeadDimV / 2, c.facts.dtype, true, true, kBlockKeys / 16, false, c.facts.dtype};
}
TESSERA_HD constexpr WgmmaShape other_wgmma(const Config& c) {
  if (widens(c)) return own_wgmma(c);
  return {kHeadDimV / 2, c.facts.dtype, false, true, kBlockKeys / 16, false, c.facts.dtype};
}

}  // namespace tessera::fmha_latent
