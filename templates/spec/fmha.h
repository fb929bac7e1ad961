// Fused attention forward by wgmma, on Hopper, and by mma.sync, on every target: what a Config is, which ones are
// legal, and everything that follows from one: shared memory, warp roles, registers, TMA boxes, grid. Planner and
// device code evaluate the same functions. What follows is of both; how mma.sync's consumers share rows:
// spec/fmha_warps.h.
//
//   q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim], v [.., heads_kv, head_dim_v],
//   o [batch, seqlen_q, heads_q, head_dim_v]; s = softmax_scale * q k^T, masked; o = softmax(s) v.
//
// A CTA takes tiles of tile_m queries of one head and walks over the keys in steps of tile_n. With wgmma tile_m / 64
// consumer warpgroups own 64 query rows each: S and O live in their registers, Q, K and V in shared memory. One more
// warpgroup produces: warp 0 (load_k) and warp 1 (load_v) load K and V into a ring of `stages` slots each, warp 2
// (load_q) loads Q, and tells the others of ragged sequences' tiles, warp 3 (store_o) stores O, which consumers leave
// in Q's slot. Parts of split keys are stored by the consumers themselves, from registers; warp 3 is then idle.
//
// Shared tiles are panels of one swizzle span: [columns / span][rows][span], which one rank-5 TMA box fills.
//
// Heads beyond 256: a pair of CTAs shares a tile (cta_pair). Each has one half of head_dim of Q and K and one half of
// V's and O's columns, so that each loads and multiplies what a kernel of half the head would, and nothing is loaded
// twice. Each computes half of every score's sum; they exchange these through distributed shared memory and both add
// them up, one thread of one CTA facing the same thread of the other. `columns` below is what a CTA has of a row.
//
// Tensor maps, all with interleave none, element strides 1, zero fill, L2 promotion of 128 bytes, and the swizzle of
// the Config (its flag spelling: none, 32B, 64B, 128B). `e` is the number of elements in a span (span_elements; for the
// fp32 O: o_span_elements):
//   dims    {e, max(seqlen, 1), head_dim / e, heads, max(batch, 1)}; v and o: head_dim_v / e
//   strides {seqlen stride, span bytes, head stride, batch stride}, in bytes
//           where head_dim or head_dim_v is no multiple of 16: {head_dim, max(seqlen, 1), 1, heads, max(batch, 1)}, a
//           box for each panel, of which the last reaches over the end of the row
//   boxes   q_box, k_box, v_box, o_box; type: that of the Config, fp32 for the un-normalised O
//           where blocks are parts of two pages (has_page_parts) k and v have further maps, which differ in the keys of
//           their boxes: two and more times those of k_box, up to a page's; named k_32, v_32 and so on
//
// v with v_layout k is [batch, heads_kv, head_dim_v, seqlen_k], its map {seqlen_k, head_dim_v, heads, batch}, and a box
// {span, columns, 1, 1}: panels of keys.
//
// With pack_gqa g > 1 rows are [query][head of the g that share a key head], and the maps of q and o have
//   dims    {head_dim, g, max(seqlen_q, 1), heads_kv, max(batch, 1)}; o: head_dim_v
//   strides {head stride, seqlen stride, g * head stride, batch stride}, in bytes
// and a box has whole queries, or 64 heads of one. Where g is neither a divisor nor a multiple of 64 there is no such
// box: threads copy Q, whose map is then unused, O leaves from registers, and there is no map of it. Behind the valid
// lengths come void* o_rows, as with ragged queries, and
//   void* q_rows        q once more
// and behind the scale, after what keys in places and 8-bit keys have, the strides of o and
//   long long q_stride_head, q_stride_seqlen, q_stride_batch, as those of o
//
// Entry parameters, in this order:
//   const __grid_constant__ TensorMap q, k, v, o        (split keys: no o; before o the further maps of k, then of v)
//   float* lse          [batch, heads_q, seqlen_q] dense, may be null
//   float* row_max      as lse; un-normalised output only (required), else the parameter does not exist
//   float* row_sum      as row_max
//   int* seqused_q      [batch], valid queries of each sequence: with seqused qk only
//   int* seqused_k      [batch], valid keys: with seqused k or qk only
//   float* sink         [heads_q], may be null: with sinks only
//   float* alibi_slopes [heads_q]: with slopes only
//   int* tree_mask      [batch, seqlen_q, tree_words] and int tree_words: with trees only
//   int batch, heads_q, heads_kv, seqlen_q, seqlen_k
//   int window_size_left, window_size_right: with a window only; -1: no bound
//   int attention_chunk: with a window of chunks only
//   float softmax_scale
//   float softcap: where scores are capped only
// With split keys o, lse, row_max, row_sum and sink are parameters of a second kernel that merges the parts
// (attention::MergeParams, in that order); the first one has none of them and, behind the valid lengths,
//   float* partial_o    [num_splits][batch, heads_q, seqlen_q, head_dim_v], un-normalised
//   float* partial_sums [num_splits][batch, heads_q, seqlen_q][2]: the reference times log2(e), the sum
// and, behind seqlen_k, int num_splits. With dealt keys (fmha/dealer.cuh) there are no num_splits: each CTA has a slot
// for a part at the begin of its range and one for a part at its end, [2 * CTAs][min(tile_m, rows of a head)][..]. Both
// kernels have the same parameters then: q, k, v as above, void* o, the statistics, those above, and behind the scale
//   long long o_stride_head, o_stride_seqlen, o_stride_batch
// to which the second kernel adds int num_ctas; it does not use the maps. Parts with a size of their own (split_size)
// have slots of their tile, [tiles][max_parts][min(tile_m, rows of a head)][..], and int max_parts stands behind the
// strides; where they are not dealt, part i of num_splits is the i-th of that size.
// Ragged queries: q and o are [seqlen_q, heads_q, ..], seqlen_q being the queries of all sequences, lse and its like
// [heads_q, seqlen_q], the maps' batch is 1, and the strides of o, without batch, come behind the scale too. Behind the
// valid lengths come
//   int* cu_seqlens_q   [batch + 1], where each sequence's queries begin, and the end
//   void* o_rows        o once more: a sequence's last rows leave without the map; with dealt keys o itself is this
// and tiles, below, are at most (ceil_div(seqlen_q * g, tile_m) + batch) times the heads.
// Keys in pages (kv_layout paged): k [pages, page_size, heads_kv, head_dim] and v are pools, int* block_table [batch,
// max_pages] lists the pages of each sequence, of which seqused_k keys are valid. An entry that is read and is no page
// of the pool stands for keys and values of zeros. Ragged keys: k and v [tokens_k, heads_kv, ..], those of sequence b
// from cu_seqlens_k[b] to cu_seqlens_k[b + 1]. seqlen_k is what no sequence has more of. The maps of k and v have
//   dims    {e, page_size, head_dim / e, heads_kv, max(pages, 1)}, or {e, max(tokens_k, 1), head_dim / e, heads_kv}
// and there are none with kv_copy cp_async. Behind softmax_scale come
//   void* k_keys, v_keys     k and v once more, for threads
//   int* block_table, int pages, max_pages; or int* cu_seqlens_k, int tokens_k
//   long long k_stride_page, k_stride_seqlen, k_stride_head, the same of v, in elements; ragged: no stride of pages
// Codes with scales (kv_format nvfp4, mxfp8): k and v are pages of codes, [.., head_dim / 2] or [.., head_dim], and
// k_scale, v_scale [pages, heads_kv, page_size, scales of a key]: a page's scales of a head lie side by side. Behind
// the descales and their strides come
//   void* k_scale, v_scale
//   long long k_scale_stride_page, k_scale_stride_head, the same of v_scale, in bytes
// Two pools of keys (kv_pools sparse_window): k [seqlen_k, head_dim] and v [seqlen_k, head_dim_v] are rows that queries
// list; threads copy them, and there are no maps of k and v. A tile is one query or a part of one, at most tile_m of
// its heads: tiles = ceil_div(g, tile_m) * seqlen_q * batch. heads_kv is 1, topk + seqlen_swa at most 2^31 - 2^16.
// Behind lse come void* swa_k, swa_v [batch, seqlen_swa, 1, ..], int* indices [batch, seqlen_q, topk], int*
// topk_lens [batch, seqlen_q] (may be null), swa_lens [batch], sink, int topk, seqlen_swa; and behind softmax_scale
//   void* k_keys, v_keys     k and v
//   long long k_stride_seqlen, v_stride_seqlen, swa_k_stride_seqlen, swa_k_stride_batch, the same of swa_v; in elements
// Launch: grid {min(ctas_per_sm * num_sms, tiles), 1, 1} with tiles = ceil_div(seqlen_q, tile_m) * heads_q * batch,
// block {num_threads, 1, 1}, dynamic shared memory smem_layout().total_bytes, no cluster, no workspace. A grid of 0 has
// nothing to do. CTA pairs: twice min(num_sms / 2 or 1, tiles), in clusters of 2. pack_gqa g: tiles =
// ceil_div(seqlen_q * g, tile_m) * heads_kv * batch. Split keys: num_splits times as many tiles, or with dealt keys as
// many as all tiles' blocks of keys may be, a workspace for the parts, and a second step of a warp for each row, or for
// each row of each cut between two CTAs (ragged queries: some rows), or merge_ctas_of_tile() CTAs for each tile of
// parts with a size of their own, which is launched with programmatic stream serialization and waits for the first
// itself. Domain: heads_q a multiple of heads_kv, with pack_gqa g exactly g * heads_kv; tiles, heads_q * batch, every
// seqlen and seqlen_q + seqlen_k at most 2^31 - 2^16; split keys: strides of o multiples of 16 bytes.
#pragma once

#include "spec/fmha_config.h"
#include "spec/fmha_smem.h"
#include "spec/fmha_transposed.h"
#include "spec/fmha_warps.h"
#include "spec/fmha_widened.h"
#include "spec/kernel_parts.h"
#include "spec/wgmma_shape.h"

namespace tessera::fmha {

using common::barrier_at;
using common::Role;

// What a consumer thread holds of S (fp32), P (the next A operand) and O (fp32).
TESSERA_HD constexpr int accumulator_registers(const Config& c) {
  if (uses_mma_sync(c)) return registers_of_warp(c);
  return c.tile_n / 2 + c.tile_n * dtype_bytes(p_dtype(c)) / 8 + v_columns(c) / 2;
}

// CTAs that an SM holds at once: a persistent grid is this times the number of SMs. One warpgroup of consumers leaves
// room for a second CTA, if shared memory and registers do.
TESSERA_HD constexpr int ctas_per_sm(const Config& c) {
  if (has_widening_warps(c)) return fits_two_widened(c) ? 2 : 1;
  const bool is_small = consumer_warpgroups(c) == 1 && !c.cta_pair && c.facts.head_dim_v <= 128 && c.tile_n <= 192;
  return is_small && smem_layout(c).total_bytes <= most_smem_bytes_of_two(c) ? 2 : 1;
}

// Registers per thread: at entry, as __launch_bounds__(num_threads, ctas_per_sm) deals them, and after setmaxnreg. The
// sums over warpgroups stay within the entry's. With 24 registers a producer spills in its walk over causal tiles.
struct RegisterBudget {
  int entry = 0;
  int producer = 0;
  int consumer = 0;
};

// Whether the loads of a block are those of dense keys, but for the last of a sequence: packed keys too, where queries
// are packed likewise (beside the walk over dense ones ptxas spills two registers).
TESSERA_HD constexpr bool has_plain_loads(const AttentionFacts& f) {
  return f.kv_layout == KvLayout::dense || (f.kv_layout == KvLayout::ragged && is_ragged(f));
}

// Whether loading warps look up pages or copy keys or queries themselves.
TESSERA_HD constexpr bool has_busy_loads(const Config& c) {
  if (copies_q(c) || has_pools(c)) return true;
  if (passes_prefills(c) && c.kv_copy == KvCopy::tma) return false;
  return c.facts.kv_layout != KvLayout::dense && (!has_plain_loads(c.facts) || c.kv_copy == KvCopy::cp_async);
}

// They need more than those that start one copy for a block.
TESSERA_HD constexpr RegisterBudget register_budget_of_pages(const Config& c) {
  switch (consumer_warpgroups(c)) {
    case 1:
      return ctas_per_sm(c) == 2 ? RegisterBudget{128, 56, 200} : RegisterBudget{248, 248, 248};
    case 2:
      return {168, 56, 224};
    case 3:
      return {128, 56, 152};
    default:
      return {96, 64, 104};
  }
}

inline constexpr int kManyRegisters = 160;  // of Q, S and O, beside which 216 were too few

// With rows of their own consumers leave more to loads that need it, unless they have two groups of rows, or hold the
// queries of a long head.
TESSERA_HD constexpr RegisterBudget register_budget_of_rows(const Config& c) {
  if (consumer_warpgroups(c) == 1)
    return ctas_per_sm(c) == 2 ? RegisterBudget{128, 72, 184} : RegisterBudget{248, 248, 248};
  const bool needs_most = row_blocks(c) == 2 || registers_of_warp(c) > kManyRegisters;
  return needs_most ? RegisterBudget{168, 56, 224} : RegisterBudget{168, 72, 216};
}

TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  if (owns_rows(c) && (has_busy_loads(c) || is_dealt(c))) return register_budget_of_rows(c);
  if (has_widening_warps(c)) {
    const int ctas = ctas_per_sm(c);
    return {entry_registers_of_widened(c, ctas), widening_registers(c, ctas), consumer_registers_of_widened(c, ctas)};
  }
  if (has_busy_loads(c)) return register_budget_of_pages(c);
  switch (consumer_warpgroups(c)) {
    case 1:
      return ctas_per_sm(c) == 2 ? RegisterBudget{128, 40, 216}
                                 : RegisterBudget{248, 248, 248};  // else all have enough: nothing moves
    case 2:
      return {168, 40, 232};
    case 3:
      return {128, 32, 160};
    default:
      return {96, 32, 112};
  }
}

inline constexpr int kRegistersOfSm = 65536;

// At entry, as the assembler takes them: where no register moves, all that the launch bounds leave.
TESSERA_HD constexpr int launched_registers(const Config& c) {
  const RegisterBudget budget = register_budget(c);
  if (budget.entry != budget.producer || budget.entry != budget.consumer) return budget.entry;
  const int all = kRegistersOfSm / (num_threads(c) * ctas_per_sm(c));
  return all < 255 ? all : 255;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_columns(const Config& c, int head_dim) {
  const int multiple = c.cta_pair || is_8_bit(c.facts) ? 32 : 8;
  if (head_dim < 16 || head_dim % multiple != 0) return {Rule::head_dim_not_multiple_of_8, head_dim, multiple};
  const int columns = padded_columns(head_dim) / ctas_per_tile(c);
  if (columns > 256) return {Rule::head_dim_out_of_range, head_dim, 256 * ctas_per_tile(c)};
  const int row_bytes = columns * dtype_bytes(c.facts.dtype);
  const int span = swizzle_span_bytes(c.swizzle);
  if (row_bytes % span != 0) return {Rule::head_dim_not_multiple_of_span, row_bytes, span};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_keys(const Config& c) {
  if (c.facts.kv_layout != KvLayout::paged && c.facts.page_size != 0)
    return {Rule::page_size_without_pages, c.facts.page_size, 0};
  if (has_pools(c) && c.kv_copy != KvCopy::cp_async) return {Rule::pools_need_cp_async, 1, 0};
  if (!has_placed_keys(c) && c.kv_copy != KvCopy::tma) return {Rule::kv_copy_of_dense_keys, 1, 0};
  if (has_descales(c.facts) && c.cta_pair) return {Rule::widened_keys_of_cta_pairs, c.facts.head_dim, 256};
  if (c.facts.kv_layout != KvLayout::paged) return {};
  if (!is_page_size(c.facts.page_size)) return {Rule::page_size_unknown, c.facts.page_size, 256};
  if (c.facts.seqused == UsedLengths::none) return {Rule::pages_without_lengths, 0, 1};
  if (c.kv_copy == KvCopy::tma && c.facts.page_size < 8) return {Rule::page_too_small_for_tma, c.facts.page_size, 8};
  return {};
}

// Codes with scales.
TESSERA_HD constexpr Verdict<Rule> why_invalid_scaled(const Config& c) {
  if (!has_key_scales(c.facts)) return {};
  const bool is_known = c.facts.head_dim == 64 || c.facts.head_dim == 128 || c.facts.head_dim == 256;
  const int others = (c.facts.dtype != DType::bf16) + (c.facts.kv_layout != KvLayout::paged) + has_pools(c) +
                     (!is_known || c.facts.head_dim_v != c.facts.head_dim);
  if (others != 0) return {Rule::facts_of_scaled_keys, others, 0};
  if (c.kv_copy != KvCopy::tma) return {Rule::scaled_keys_need_tma, 1, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_pools(const Config& c) {
  if (!has_pools(c)) return {};
  if (c.facts.kv_layout != KvLayout::dense) return {Rule::placed_keys_need_dense_facts, 1, 0};
  const int others = (c.facts.seqused != UsedLengths::none) + (c.facts.window != Window::none) + is_split(c) +
                     (c.facts.v_layout == Layout::k_major) + (c.facts.output == Output::unnormalized) +
                     is_ragged(c.facts) + has_descales(c.facts);
  if (others != 0) return {Rule::pools_need_dense_facts, others, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_v(const Config& c) {
  if (c.facts.v_layout != Layout::k_major) return {};
  const int bytes = dtype_bytes(c.facts.dtype);
  if (c.tile_n % span_elements(c) != 0)
    return {Rule::tile_n_not_multiple_of_span, c.tile_n * bytes, swizzle_span_bytes(c.swizzle)};
  if (c.facts.seqused != UsedLengths::none) return {Rule::k_major_v_of_used_keys, bytes, 16};
  const int others = (c.facts.kv_layout != KvLayout::dense) + has_descales(c.facts);
  if (others != 0) return {Rule::k_major_v_of_placed_keys, others, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_promotion(const Config& c) {
  if (c.promote_every < 0 || c.promote_every % c.tile_n != 0)
    return {Rule::promotion_not_of_tiles, c.promote_every, c.tile_n};
  if (c.promote_every > 0 && !transposes_v(c)) return {Rule::promotion_of_16_bit, c.promote_every, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.facts.dtype != DType::f16 && c.facts.dtype != DType::bf16 && c.facts.dtype != DType::e4m3)
    return {Rule::dtype_not_16_bit, dtype_bytes(c.facts.dtype), 2};
  const Verdict<Rule> of_qk = why_invalid_columns(c, c.facts.head_dim);
  if (!of_qk.ok()) return of_qk;
  const Verdict<Rule> of_v = why_invalid_columns(c, c.facts.head_dim_v);
  if (!of_v.ok()) return of_v;
  if (c.facts.head_dim_v > c.facts.head_dim)
    return {Rule::head_dim_v_exceeds_head_dim, c.facts.head_dim_v, c.facts.head_dim};
  const Verdict<Rule> of_warps = why_invalid_warps(c);
  if (!of_warps.ok()) return of_warps;
  if (!shares_blocks(c) && (c.tile_m < 64 || c.tile_m % 64 != 0))
    return {Rule::tile_m_not_multiple_of_64, c.tile_m, 64};
  if (c.tile_m > 256) return {Rule::tile_m_out_of_range, c.tile_m, 256};
  const int keys_of_step = 32 / dtype_bytes(c.facts.dtype);
  if (c.tile_n < keys_of_step || c.tile_n % keys_of_step != 0)
    return {Rule::tile_n_not_multiple_of_16, c.tile_n, keys_of_step};
  if (c.tile_n > 256) return {Rule::tile_n_out_of_range, c.tile_n, 256};
  if (c.stages < 1 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.q_stages < 1 || c.q_stages > 2) return {Rule::q_stages_out_of_range, c.q_stages, 2};
  if (c.ping_pong && consumer_warpgroups(c) < 2) {
    return {Rule::ping_pong_needs_two_warpgroups, consumer_warpgroups(c), 2};
  }
  const int registers = register_budget(c).consumer - registers_beside_accumulators(c);
  if (accumulator_registers(c) > registers) {
    return {Rule::accumulators_exceed_registers, accumulator_registers(c), registers};
  }
  const int entry_registers = register_budget(c).entry - kRegistersBesideInstruction;
  const int instruction_n = c.tile_n > v_columns(c) ? c.tile_n : v_columns(c);
  if (!uses_mma_sync(c) && instruction_n / 2 > entry_registers)
    return {Rule::instruction_exceeds_registers, instruction_n / 2, entry_registers};
  if (c.pack_gqa < 1 || c.pack_gqa > kMaxPackedHeads) {
    return {Rule::pack_gqa_out_of_range, c.pack_gqa, kMaxPackedHeads};
  }
  if (c.facts.split_size < 0 || c.facts.split_size % c.tile_n != 0)
    return {Rule::split_size_not_of_tiles, c.facts.split_size, c.tile_n};
  const Verdict<Rule> of_promotion = why_invalid_promotion(c);
  if (!of_promotion.ok()) return of_promotion;
  const Verdict<Rule> of_keys = why_invalid_keys(c);
  if (!of_keys.ok()) return of_keys;
  const Verdict<Rule> of_scaled = why_invalid_scaled(c);
  if (!of_scaled.ok()) return of_scaled;
  const Verdict<Rule> of_pools = why_invalid_pools(c);
  if (!of_pools.ok()) return of_pools;
  const Verdict<Rule> of_v_layout = why_invalid_v(c);
  if (!of_v_layout.ok()) return of_v_layout;
  const int bytes = smem_layout(c).total_bytes;
  if (bytes > most_smem_bytes(c)) return {Rule::shared_memory_exceeded, bytes, most_smem_bytes(c)};
  return {};
}

TESSERA_HD constexpr int num_roles(const Config& c) { return transposes_v(c) || shares_blocks(c) ? 4 : 5; }
inline constexpr int kWarpOfK = 0;  // of the producer warpgroup
inline constexpr int kWarpOfV = 1;
inline constexpr int kWarpOfQ = 2;
inline constexpr int kWarpOfO = 3;

TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  if (has_widening_warps(c)) {
    const int consumers = 4 * consumer_warpgroups(c);
    if (index < 2) return {index == 0 ? "widen_k" : "widen_v", kWideningWarps * index, kWideningWarps, budget.producer};
    if (index == 2) return {"consumer", 4, consumers, budget.consumer};
    return {index == 3 ? "load_k" : "load_v", 4 + consumers + index - 3, 1, budget.entry};
  }
  if (!has_storing_warp(c) && index == 3) return {"consumer", 4, 4 * consumer_warpgroups(c), budget.consumer};
  switch (index) {
    case 0:
      return {"load_k", kWarpOfK, 1, budget.producer};
    case 1:
      return {"load_v", kWarpOfV, 1, budget.producer};
    case 2:
      if (transposes_v(c)) return {"transpose_v", 4 - kTransposingWarps, kTransposingWarps, budget.producer};
      return {"load_q", kWarpOfQ, 1, budget.producer};
    case 3:
      return {"store_o", kWarpOfO, 1, budget.producer};
    default:
      return {"consumer", 4, 4 * consumer_warpgroups(c), budget.consumer};
  }
}

// A rank-5 TMA box, innermost first: {span, rows, panels, 1 head, 1 batch}; one panel where columns are padded. Where
// heads are packed, of Q and O: {span, heads of the key head, queries, 1 key head, 1 batch}, one copy for each panel.
// With pools a box is 64 heads of one query, however many there are.
using TmaBox = common::TmaBox<5>;

TESSERA_HD constexpr int panels_of_box(const Config& c, int panels) { return is_padded(c.facts) ? 1 : panels; }
TESSERA_HD constexpr TmaBox packed_box(const Config& c, int span) {
  const int heads = padded_heads(c) < rows_of_box(c) ? padded_heads(c) : rows_of_box(c);
  return {{span, heads, rows_of_box(c) / heads, 1, 1}};
}
TESSERA_HD constexpr TmaBox q_box(const Config& c) {
  if (is_packed(c)) return packed_box(c, span_elements(c));
  return {{span_elements(c), rows_of_box(c), panels_of_box(c, qk_columns(c) / span_elements(c)), 1, 1}};
}
TESSERA_HD constexpr int box_keys(const Config& c) {
  return tessera::box_keys(c.facts.kv_layout, c.facts.page_size, c.tile_n);
}
// Ragged prefills in pages whose blocks are a page and a box of 16 keys, 80 keys over pages of 64: a block is the end
// of a page and the begin of the next one it sees, two boxes of a panel in place of five. Each number of keys that such
// a box may have, 1 to 4 times box_keys(), has a map of its own.
inline constexpr int kMostPageParts = 4;
inline constexpr int kKeysOfPagePart = 16;
TESSERA_HD constexpr bool has_page_parts(const Config& c) {
  if (!passes_prefills(c) || c.facts.kv_layout != KvLayout::paged || c.kv_copy != KvCopy::tma) return false;
  if (box_keys(c) != kKeysOfPagePart) return false;
  const int of_page = c.facts.page_size / kKeysOfPagePart;
  return consumer_warpgroups(c) == 3 && !is_padded(c.facts) && c.tile_n == c.facts.page_size + kKeysOfPagePart &&
         of_page > 1 && of_page <= kMostPageParts;
}
// A box of fewer keys than a block's has one panel: the next panel begins behind the block's keys.
TESSERA_HD constexpr TmaBox kv_box(const Config& c, int columns) {
  const int span = key_span_bytes(c.facts, c.swizzle, columns) / dtype_bytes(key_dtype(c.facts));
  const int panels = box_keys(c) == c.tile_n ? panels_of_box(c, key_elements(c.facts, columns) / span) : 1;
  return {{span, box_keys(c), panels, 1, 1}};
}
TESSERA_HD constexpr TmaBox k_box(const Config& c) { return kv_box(c, qk_columns(c)); }
TESSERA_HD constexpr TmaBox v_box(const Config& c) {
  if (c.facts.v_layout == Layout::k_major) return {{span_elements(c), v_columns(c), 1, 1, 1}};
  return kv_box(c, v_columns(c));
}
// A warpgroup's O leaves in o_passes() boxes, none larger than its Q slot: fp32 needs two, by columns, and beside Q of
// 8 bits four; 16 bits beside it two. Parts of split keys leave from registers.
TESSERA_HD constexpr int o_passes(const Config& c) {
  return leaves_from_registers(c) ? 1 : o_element_bytes(c.facts) / dtype_bytes(c.facts.dtype);
}
TESSERA_HD constexpr TmaBox o_box(const Config& c) {
  if (is_packed(c)) return packed_box(c, o_span_elements(c));
  return {
      {o_span_elements(c), kRowsPerWarpgroup, panels_of_box(c, v_columns(c) / o_passes(c) / o_span_elements(c)), 1, 1}};
}

// The generator writes one small header with the shapes in use.
using tessera::WgmmaShape;

// How many of a product's steps go into one statement: all of them, or a part of equal size. The descriptors of more
// than 8 do not find room in the uniform registers.
TESSERA_HD constexpr int steps_of_statement(int steps) {
  int of_statement = steps < 8 ? steps : 8;
  while (steps % of_statement != 0) --of_statement;
  return of_statement;
}

// S = Q K^T and O += P V, in steps of 32 bytes.
TESSERA_HD constexpr int score_steps(const Config& c) { return qk_columns(c) * dtype_bytes(c.facts.dtype) / 32; }
TESSERA_HD constexpr int output_steps(const Config& c) { return c.tile_n * dtype_bytes(p_dtype(c)) / 32; }
TESSERA_HD constexpr WgmmaShape score_wgmma(const Config& c) {
  return {c.tile_n, c.facts.dtype, false, false, steps_of_statement(score_steps(c)), false, c.facts.dtype, true};
}
// Whether consumers read V with its columns side by side, as it lies in memory.
TESSERA_HD constexpr bool reads_mn_major_v(const Config& c) {
  return c.facts.v_layout == Layout::mn_major && !is_8_bit(c.facts);
}
TESSERA_HD constexpr WgmmaShape output_wgmma(const Config& c) {
  return {v_columns(c), p_dtype(c), true, reads_mn_major_v(c), steps_of_statement(output_steps(c)), false, p_dtype(c)};
}

}  // namespace tessera::fmha
