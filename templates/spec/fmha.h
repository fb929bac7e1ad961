// Fused attention forward on Hopper: what a Config is, which ones are legal, and everything that follows from one:
// shared memory, warp roles, registers, TMA boxes, grid. Planner and device code evaluate the same functions.
//
//   q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim], v [.., heads_kv, head_dim_v],
//   o [batch, seqlen_q, heads_q, head_dim_v]; s = softmax_scale * q k^T, masked; o = softmax(s) v.
//
// A CTA takes tiles of tile_m queries of one head and walks over the keys in steps of tile_n. tile_m / 64 consumer
// warpgroups own 64 query rows each: S and O live in their registers, Q, K and V in shared memory. One more warpgroup
// produces: warp 0 (load_k) and warp 1 (load_v) load K and V into a ring of `stages` slots each, warp 2 (load_q) loads
// Q, and tells the others of ragged sequences' tiles, warp 3 (store_o) stores O, which consumers leave in Q's slot.
// Parts of split keys are stored by the consumers themselves, from registers; warp 3 is then idle.
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
//   const __grid_constant__ TensorMap q, k, v, o        (split keys: no o)
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
// each row of each cut between two CTAs, or merge_ctas_of_tile() CTAs for each tile of parts with a size of their own,
// which is launched with programmatic stream serialization and waits for the first itself.
// Domain: heads_q a multiple of heads_kv, with pack_gqa g exactly g * heads_kv; tiles, heads_q * batch, every seqlen
// and seqlen_q + seqlen_k at most 2^31 - 2^16; split keys: strides of o multiples of 16 bytes.
#pragma once

#include "spec/fmha_config.h"
#include "spec/fmha_transposed.h"
#include "spec/fmha_warps.h"
#include "spec/fmha_widened.h"
#include "spec/kernel_parts.h"
#include "spec/wgmma_shape.h"

namespace tessera::fmha {

using common::barrier_at;
using common::BarrierRow;
using common::Role;
using common::row_at;
using common::SmemRegion;

// What a consumer thread holds of S (fp32), P (the next A operand) and O (fp32).
TESSERA_HD constexpr int accumulator_registers(const Config& c) {
  if (uses_mma_sync(c)) return registers_of_warp(c);
  return c.tile_n / 2 + c.tile_n * dtype_bytes(p_dtype(c)) / 8 + v_columns(c) / 2;
}

struct SmemLayout {
  SmemRegion q;          // [q_stages][row group][columns / span][64][span]; O leaves through the same bytes
  SmemRegion k;          // [stages][columns / span][tile_n][span]
  SmemRegion v;          // as k; K-major, and transposed 8-bit: [stages][tile_n / span][columns][span]
  SmemRegion exchange;   // CTA pairs: [consumer warpgroup][tile_n / 8][thread][4], the other CTA's scores, fp32
  SmemRegion raw_k;      // 8-bit keys: [raw_stages][columns / span][tile_n][span], no swizzle; see fmha_widened.h
  SmemRegion raw_v;      // as raw_k; before it is transposed: as k, [raw_v_stages]
  SmemRegion joined;     // mma.sync: [warp][16][2], references and sums, fp32; [16 rows of O], fp32
  SmemRegion promoted;   // 8 bits in all: [consumer warpgroup]: [words / 4][thread][4], sums, and [thread][2]
  SmemRegion present;    // two pools: [stages], a bit for each key of K's slot: fmha/pools.cuh
  SmemRegion step_work;  // what the CTA does of a step: fmha/step_work.cuh; where the Config has whole tiles
  SmemRegion passed;     // [kPassedTiles], what the roles are told of a tile: fmha/passed_tiles.cuh
  SmemRegion k_scales;   // keys with scales: [slots of the ring that loads fill][tile_n][scales of a key]
  SmemRegion v_scales;   // as k_scales
  SmemRegion barriers;   // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow q_full;   // [q_stages][row group]
  BarrierRow q_empty;  // as q_full
  BarrierRow k_full;   // [stages]
  BarrierRow k_empty;
  BarrierRow v_full;
  BarrierRow v_empty;
  BarrierRow o_full;          // as q_full
  BarrierRow o_read;          // [row group]
  BarrierRow exchange_full;   // [consumer warpgroup], CTA pairs only
  BarrierRow exchange_empty;  // as exchange_full
  BarrierRow tail;            // one, of keys that do not lie dense: V's boxes in which a sequence ends are there
  BarrierRow passed;          // [kPassedTiles], where tiles are passed on
  BarrierRow raw_k_full;      // [raw_stages], 8-bit keys only
  BarrierRow raw_k_empty;
  BarrierRow raw_v_full;  // [raw_v_stages], or as raw_k_full
  BarrierRow raw_v_empty;
  int count = 0;  // of all
};
// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  const int groups = row_groups(c);
  const int num_q = c.q_stages * groups;
  const int exchanging = c.cta_pair ? groups : 0;
  const int raw = raw_stages(c), raw_v = raw_v_stages(c);
  const bool has_stores = has_storing_warp(c);
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.q_full = cursor.take(num_q);
  b.q_empty = cursor.take(num_q);
  b.k_full = cursor.take(c.stages);
  b.k_empty = cursor.take(c.stages);
  b.v_full = cursor.take(c.stages);
  b.v_empty = cursor.take(c.stages);
  b.o_full = cursor.take(has_stores ? num_q : 0);
  b.o_read = cursor.take(has_stores ? groups : 0);
  b.exchange_full = cursor.take(exchanging);
  b.exchange_empty = cursor.take(exchanging);
  b.tail = cursor.take(has_placed_keys(c) ? 1 : 0);
  b.passed = cursor.take(passes_tiles(c) ? kPassedTiles : 0);
  b.raw_k_full = cursor.take(raw);
  b.raw_k_empty = cursor.take(raw);
  b.raw_v_full = cursor.take(raw_v);
  b.raw_v_empty = cursor.take(raw_v);
  b.count = cursor.next.index;
  return b;
}

TESSERA_HD constexpr int q_slot_bytes(const Config& c) {
  return rows_of_box(c) * qk_columns(c) * dtype_bytes(c.facts.dtype);
}
// Of a key, as consumers read it.
TESSERA_HD constexpr int slot_row_bytes(const Config& c, int columns) {
  return has_widening_warps(c) ? columns * dtype_bytes(c.facts.dtype) : key_row_bytes(c.facts, columns);
}
TESSERA_HD constexpr int k_slot_bytes(const Config& c) { return c.tile_n * slot_row_bytes(c, qk_columns(c)); }
TESSERA_HD constexpr int v_slot_bytes(const Config& c) { return c.tile_n * slot_row_bytes(c, v_columns(c)); }
// A bit for each key of a block, in whole 16 bytes.
TESSERA_HD constexpr int present_slot_bytes(const Config& c) {
  return has_pools(c) ? static_cast<int>(round_up(c.tile_n, 128)) / 8 : 0;
}
// The scores of a warpgroup's block, fp32.
TESSERA_HD constexpr int exchange_slot_bytes(const Config& c) {
  return c.cta_pair ? kRowsPerWarpgroup * c.tile_n * 4 : 0;
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  const int groups = row_groups(c);
  const int num_q = c.q_stages * groups;
  layout.q = {"q", 0, num_q * q_slot_bytes(c)};
  layout.k = {"k", end_of(layout.q), c.stages * k_slot_bytes(c)};
  layout.v = {"v", end_of(layout.k), c.stages * v_slot_bytes(c)};
  layout.exchange = {"exchange", end_of(layout.v), groups * exchange_slot_bytes(c)};
  layout.raw_k = {"raw_k", end_of(layout.exchange), raw_stages(c) * raw_k_slot_bytes(c)};
  layout.raw_v = {"raw_v", end_of(layout.raw_k), raw_v_stages(c) * raw_v_slot_bytes(c)};
  layout.joined = {"joined", end_of(layout.raw_v), joined_sums_bytes(c) + joined_rows_bytes(c)};
  layout.promoted = {"promoted", end_of(layout.joined), groups * promoted_slot_bytes(c)};
  layout.present = {"present", end_of(layout.promoted), c.stages * present_slot_bytes(c)};
  layout.step_work = {"step_work", end_of(layout.present), has_whole_tiles(c) ? kStepWorkBytes : 0};
  layout.passed = {"passed", end_of(layout.step_work), passes_tiles(c) ? kPassedTiles * kPassedTileBytes : 0};
  layout.k_scales = {"k_scales", end_of(layout.passed), load_stages(c, false) * scale_slot_bytes(c, qk_columns(c))};
  layout.v_scales = {"v_scales", end_of(layout.k_scales), load_stages(c, true) * scale_slot_bytes(c, v_columns(c))};
  layout.barriers = {"barriers", end_of(layout.v_scales), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

// What loading warps fill: bytes from the begin of shared memory, and their barriers.
struct LoadRing {
  int offset = 0;
  int slot_bytes = 0;
  BarrierRow full;
  BarrierRow empty;
};
// Where a slot's scales begin.
TESSERA_HD constexpr int scales_offset(const Config& c, bool is_v) {
  const SmemLayout layout = smem_layout(c);
  return is_v ? layout.v_scales.offset : layout.k_scales.offset;
}
TESSERA_HD constexpr LoadRing load_ring(const Config& c, bool is_v, unsigned smem = 0) {
  const SmemLayout layout = smem_layout(c);
  const Barriers b = barriers(c, smem);
  if (!has_widening_warps(c) && !(transposes_v(c) && is_v)) {
    return is_v ? LoadRing{layout.v.offset, v_slot_bytes(c), b.v_full, b.v_empty}
                : LoadRing{layout.k.offset, k_slot_bytes(c), b.k_full, b.k_empty};
  }
  return is_v ? LoadRing{layout.raw_v.offset, raw_v_slot_bytes(c), b.raw_v_full, b.raw_v_empty}
              : LoadRing{layout.raw_k.offset, raw_k_slot_bytes(c), b.raw_k_full, b.raw_k_empty};
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
  if (passes_tiles(c) && c.kv_copy == KvCopy::tma) return false;
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

// With rows of their own consumers leave more to loads that need it, unless they have two groups of rows.
TESSERA_HD constexpr RegisterBudget register_budget_of_rows(const Config& c) {
  if (consumer_warpgroups(c) == 1)
    return ctas_per_sm(c) == 2 ? RegisterBudget{128, 72, 184} : RegisterBudget{248, 248, 248};
  return row_blocks(c) == 2 ? RegisterBudget{168, 56, 224} : RegisterBudget{168, 72, 216};
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
// A warpgroup's O leaves in o_passes() boxes, none larger than its Q slot: fp32 needs two, by columns. Parts of split
// keys leave from registers.
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

TESSERA_HD constexpr bool needs_cta_pair(int head_dim) { return head_dim > 256; }

// The widest swizzle whose span divides what a CTA has of a row.
TESSERA_HD constexpr Swizzle widest_swizzle(const Config& c) {
  const int qk_bytes = qk_columns(c) * dtype_bytes(c.facts.dtype);
  const int v_bytes = v_columns(c) * dtype_bytes(c.facts.dtype);
  if (qk_bytes % 128 == 0 && v_bytes % 128 == 0) return Swizzle::b128;
  return qk_bytes % 64 == 0 && v_bytes % 64 == 0 ? Swizzle::b64 : Swizzle::b32;
}

// Whether joined tiles would wait for each other: a tile's first step holds the turn and waits for its first V, since
// what threads write must not be multiplied meanwhile; the only slot is free once the other warpgroup had its turn.
TESSERA_HD constexpr bool locks_joined(const Config& c) {
  const bool is_written_by_threads = has_placed_keys(c) || has_descales(c.facts);
  return is_written_by_threads && c.stages == 1 && consumer_warpgroups(c) >= 2;
}

// Completes a Config whose head_dims, tile, stages, swizzle, types, mask and output are set: the choices that nobody
// pins.
TESSERA_HD constexpr Config complete(Config c) {
  c.cta_pair = needs_cta_pair(c.facts.head_dim);
  c.ping_pong = consumer_warpgroups(c) >= 2 && !uses_mma_sync(c);
  c.q_stages = 2;
  if (smem_layout(c).total_bytes > most_smem_bytes(c) || (has_widening_warps(c) && raw_stages(c) < 2)) c.q_stages = 1;
  // A tile's Q is in registers once it has begun: the next one's may come.
  if (shares_blocks(c)) c.q_stages = 1;
  if (locks_joined(c)) c.q_stages = 1;
  return c;
}

// The head dimensions that kernels are made for.
struct HeadDims {
  int head_dim = 0;
  int head_dim_v = 0;
};

inline constexpr HeadDims kHeadDims[] = {{16, 16},   {32, 32},   {64, 64},   {72, 72},   {80, 80},   {96, 96},
                                         {128, 128}, {160, 160}, {192, 128}, {192, 192}, {256, 256}, {512, 512}};

// Tiles worth considering for a head_dim.
struct Tile {
  int head_dim = 0;
  int head_dim_v = 0;
  int tile_m = 0;
  int tile_n = 0;
  int stages = 0;
};

inline constexpr Tile kTiles[] = {
    {64, 64, 192, 128, 2},   {64, 64, 256, 64, 2},    {64, 64, 128, 128, 2},   {64, 64, 192, 96, 2},
    {64, 64, 128, 128, 3},   {64, 64, 64, 128, 2},    {96, 96, 192, 96, 2},    {96, 96, 128, 128, 2},
    {96, 96, 128, 160, 2},   {96, 96, 192, 96, 3},    {96, 96, 192, 80, 2},    {96, 96, 64, 96, 2},
    {128, 128, 128, 128, 2}, {128, 128, 192, 80, 2},  {128, 128, 128, 160, 2}, {128, 128, 192, 80, 3},
    {128, 128, 128, 176, 2}, {128, 128, 128, 96, 3},  {128, 128, 64, 64, 1},   {192, 128, 128, 128, 2},
    {192, 128, 128, 96, 2},  {192, 128, 192, 80, 2},  {192, 128, 192, 64, 2},  {192, 128, 128, 80, 3},
    {192, 128, 64, 64, 2},   {192, 192, 128, 112, 2}, {192, 192, 128, 96, 2},  {192, 192, 128, 80, 2},
    {192, 192, 128, 64, 3},  {192, 192, 64, 64, 2},   {256, 256, 128, 80, 2},  {256, 256, 128, 64, 2},
    {256, 256, 128, 48, 3},  {256, 256, 64, 64, 3},   {512, 512, 128, 64, 2},  {512, 512, 128, 48, 2},
    {512, 512, 128, 32, 3},  {512, 512, 64, 48, 2},   {16, 16, 192, 128, 2},   {16, 16, 256, 64, 2},
    {16, 16, 64, 128, 2},    {32, 32, 192, 128, 2},   {32, 32, 256, 64, 2},    {32, 32, 64, 128, 2},
    {72, 72, 192, 96, 2},    {72, 72, 128, 128, 2},   {72, 72, 64, 96, 2},     {80, 80, 192, 96, 2},
    {80, 80, 128, 128, 2},   {80, 80, 64, 96, 2},     {160, 160, 128, 80, 2},  {160, 160, 128, 112, 2},
    {160, 160, 64, 64, 2},
};

// The tile that a Problem gets which pins none; seqlen_k: the number of keys that is expected, or -1. Why: an H200,
// 16,384 tokens of 2,048 features, bf16, TFLOP/s at S = 1,024 / 4,096 / 16,384, all candidates in one run:
//   head_dim 64   no mask 192x128 462 546 586, 256x64 506 543 559; causal 256x64 352 511 543, 192x128 278 480 531
//   head_dim 128  no mask 192x80 624 735 755, 128x128 644 686 689; causal 128x128 455 631 667, 192x80 396 628 750
//   head_dim 256  no mask 128x64 671 774 806, 128x80 671 765 808; causal 128x64 507 720 766, 128x80 490 717 767 (and it
//                 spills)
// At S = 1,024 / 16,384, in another run:
//   head_dim 96   no mask 192x96 536 641, 128x128 568 556, 192x80 532 607; causal 192x96 368 657, 128x128 389 548
//   192/128       no mask 128x96 657 773, 128x128 656 811, 192x64 604 770; causal 128x128 482 790, 128x96 468 755
//                 (as multiples of cuDNN, whose clocks varied likewise: 1.21 1.22, 1.20 1.20;
//                 causal 1.21 1.31, 1.17 1.32)
//   head_dim 192  no mask 128x80 694 753, 128x96 655 806, 128x112 633 770; causal 128x80 482 779, 128x96 480 783
//                 (likewise 1.16 1.24, 1.10 1.23; causal 1.10 1.31, 1.10 1.30)
//   head_dim 512  no mask, S = 16,384: 128x64 477, 128x48 455, 128x32 with 3 stages 372; causal 128x64 450, 128x48 455
// Not measured: 16 and 32 take the tiles of 64, 72 and 80 those of 96, 160 that of 192.
TESSERA_HD constexpr Tile default_tile(int head_dim, int head_dim_v, Mask mask, long long seqlen_k = -1) {
  const bool is_full = mask == Mask::none;
  const bool is_short = seqlen_k >= 0 && seqlen_k <= 2048;
  const bool is_long = seqlen_k >= 8192;
  const auto tile = [&](int tile_m, int tile_n) { return Tile{head_dim, head_dim_v, tile_m, tile_n, 2}; };
  if (head_dim <= 64) return is_full && !is_short ? tile(192, 128) : tile(256, 64);
  if (head_dim <= 96) return is_short ? tile(128, 128) : tile(192, 96);
  if (head_dim <= 128) return (is_full ? !is_short : is_long) ? tile(192, 80) : tile(128, 128);
  if (head_dim <= 192 && head_dim_v <= 128) return is_full ? tile(128, 96) : tile(128, 128);
  if (head_dim <= 192) return tile(128, 80);
  return tile(128, 64);
}

// The same for keys in pages, and copied queries: with the registers that their loads leave, and keys of whole pages.
TESSERA_HD constexpr Tile tile_of_pages(const AttentionFacts& f, bool copies_rows) {
  const bool is_raw_pair = copies_rows && f.head_dim == 512 && f.output == Output::unnormalized;
  const int tile_n = f.head_dim <= 128     ? 128
                     : f.head_dim_v <= 128 ? 96
                     : f.head_dim <= 192   ? 64
                     : is_raw_pair         ? 32
                                           : 48;
  return {f.head_dim, f.head_dim_v, 128, tile_n, 2};
}

// For a V whose keys are contiguous: with keys of whole spans.
TESSERA_HD constexpr Tile tile_of_k_major(int head_dim, int head_dim_v) {
  const int tile_n = head_dim > 64 && head_dim <= 96 ? 96 : head_dim_v <= 128 ? 128 : 64;
  return {head_dim, head_dim_v, 128, tile_n, 2};
}

// Keys of a tile of 128 rows beside 8-bit keys, at most: what else is looked up for a score leaves registers for fewer.
TESSERA_HD constexpr int most_keys_of_widened(const AttentionFacts& f, bool copies_rows) {
  if (f.head_dim > 128) return copies_rows ? 48 : 64;
  const bool is_heavy = f.tree_mask != TreeMask::none || (f.softcap != Softcap::none && f.alibi != Alibi::none) ||
                        (alters_scores(f) && copies_rows);
  return is_heavy ? 64 : f.head_dim <= 64 ? 128 : f.head_dim <= 96 ? 96 : 80;
}

// For 8-bit keys: with the registers that widening leaves.
TESSERA_HD constexpr Tile tile_of_widened(const AttentionFacts& f, bool copies_rows) {
  if (f.head_dim_v > 128) return {f.head_dim, f.head_dim_v, 64, 64, 1};
  return {f.head_dim, f.head_dim_v, 128, most_keys_of_widened(f, copies_rows), 2};
}

// For 8 bits in all: those worth considering, and the first of a head_dim that fits is what a Problem gets which pins
// none. H100, 16,384 keys, 16 heads of 128, TFLOP/s without promotion: no mask 192x96 1001, 128x160 965, 128x192 945,
// 192x64 918, 128x128 864; causal 1015, 867, 880, 917, 854. Others were not measured.
inline constexpr Tile kTilesOf8Bit[] = {
    {64, 64, 192, 128, 2},  {64, 64, 128, 128, 2},  {64, 64, 64, 128, 2},    {64, 64, 64, 64, 2},
    {128, 128, 192, 96, 2}, {128, 128, 192, 64, 2}, {128, 128, 128, 128, 2}, {128, 128, 128, 160, 2},
    {128, 128, 64, 128, 2}, {128, 128, 64, 64, 2},  {192, 128, 192, 96, 2},  {192, 128, 128, 128, 2},
    {192, 128, 64, 64, 2},  {192, 192, 128, 64, 2}, {192, 192, 64, 64, 2},   {256, 256, 128, 96, 2},
    {256, 256, 128, 64, 1}, {256, 256, 64, 64, 2},
};
// Whether a tile of 8 bits compiles without a spill: three consumer warpgroups leave 160 registers to each of their
// threads, and 32 to those that load and transpose, too few for pages, ragged sequences or copied queries.
TESSERA_HD constexpr bool fits_8_bit(const AttentionFacts& f, bool copies_queries, int tile_m, int tile_n) {
  if (f.head_dim == 256 && tile_m == 128 && tile_n >= 64)
    return f.output == Output::normalized && f.seqused == UsedLengths::none;
  if (tile_m <= 128) return true;
  if (f.kv_layout != KvLayout::dense || is_ragged(f) || copies_queries) return false;
  return tile_n <= 64 || (f.window == Window::none && f.seqused == UsedLengths::none);
}
TESSERA_HD constexpr Tile tile_of_8_bit(const AttentionFacts& f, bool copies_queries) {
  for (const Tile& tile : kTilesOf8Bit) {
    if (tile.head_dim != f.head_dim || tile.head_dim_v != f.head_dim_v) continue;
    if (fits_8_bit(f, copies_queries, tile.tile_m, tile.tile_n)) return tile;
  }
  return {f.head_dim, f.head_dim_v, 64, 64, 2};
}

// For few queries. More slots, or more keys of a step, are slower: H100, 32/8 heads, one query of 8 sequences, pages of
// 16, microseconds with 2, 3 and 4 slots of 64 keys, and 1 and 2 of 128: e4m3, 8,192 keys 56.6 57.7 58.7, 57.0 58.7;
// 32,768 keys 197 200 207, 199 204; bf16, 32,768 keys with 1, 2 and 4 slots of 64 keys 361 359 370, one of 128 364.
TESSERA_HD constexpr Tile tile_of_warps(const AttentionFacts& f) {
  return {f.head_dim, f.head_dim_v, kRowsOfWarpMma, 16 * kConsumerWarps, 2};
}

// For two pools of keys: rows for a query's heads.
TESSERA_HD constexpr Tile tile_of_pools(const AttentionFacts& f, int pack_gqa) {
  Tile tile = tile_of_pages(f, false);
  if (pack_gqa <= kRowsPerWarpgroup) tile.tile_m = kRowsPerWarpgroup;
  if (f.head_dim < 32 && tile.tile_m == 128) tile.tile_n = 96;  // with 112 and 128 keys ptxas spills
  return tile;
}

// The tile that a Problem with these facts and packed heads gets which pins none.
TESSERA_HD constexpr Tile standard_tile(const AttentionFacts& f, int pack_gqa, long long seqlen_k) {
  if (has_pools(f)) return tile_of_pools(f, pack_gqa);
  Config packed;
  packed.pack_gqa = pack_gqa;
  if (is_8_bit(f)) return tile_of_8_bit(f, copies_q(packed));
  if (widens_keys(f)) return tile_of_widened(f, copies_q(packed));
  if (f.v_layout == Layout::k_major) return tile_of_k_major(f.head_dim, f.head_dim_v);
  return has_plain_loads(f) && !copies_q(packed) ? default_tile(f.head_dim, f.head_dim_v, f.mask, seqlen_k)
                                                 : tile_of_pages(f, copies_q(packed));
}

// standard_tile() with 128-byte swizzle, or the widest that divides the rows, completed. `promotes`: sums of 8 bits.
TESSERA_HD constexpr Config default_config(const AttentionFacts& facts, int pack_gqa = 1, long long seqlen_k = -1,
                                           bool promotes = true) {
  const Tile tile = standard_tile(facts, pack_gqa, seqlen_k);
  Config c;
  c.facts = facts;
  c.pack_gqa = pack_gqa;
  if (has_pools(c)) c.kv_copy = KvCopy::cp_async;
  c.tile_m = tile.tile_m;
  c.tile_n = tile.tile_n;
  c.stages = tile.stages;
  c.promote_every = promotes ? default_promotion(c) : 0;
  c = complete(c);
  c.swizzle = widest_swizzle(c);
  return c;
}

}  // namespace tessera::fmha
