// Fused attention forward on sm_100 and sm_103: what a Config is, which ones are legal, and everything that follows
// from one: shared memory, Tensor Memory, warp roles, registers, TMA boxes, grid. Planner and device code evaluate the
// same functions. What is computed, tensors, entry parameters and launch are those of spec/fmha.h, but for what stands
// below under "Beside spec/fmha.h".
//
// A CTA takes tiles of tile_m queries of one head and walks over the keys in steps of tile_n. The tensor core sums S
// and O in Tensor Memory; a product has 128 query rows of a CTA, so a tile is one or two of them ("Q tiles"). Warps
// have one job each: warp 0 (load_kv) loads K and V, warp 1 (load_q) loads Q, warp 2 (store_o) stores O, warp 3 (mma)
// issues the products; then four warps (correction) rescale O when a row's reference moves and bring the finished O to
// shared memory; then four warps for each Q tile (softmax) turn its S into P, one thread for a row. Single jobs are one
// thread's, but for the loads of listed rows (kv_pools), which all lanes of warp 0 issue. Parts of split keys go from
// Tensor Memory to the workspace by the correction warps; warp 2 then only hands the slots of Q back.
//
// Two buffers of S keep the tensor core busy while the other one is exponentiated: two Q tiles have one each, a single
// Q tile uses them in turn. Where Tensor Memory has room for a third, the steps of two Q tiles take three in turn, so
// that the next scores of both are there when a softmax ends. P overwrites the second half of its S (p_path tmem) or
// goes to shared memory.
//
// A pair of CTAs (cta_pair) works on one tile with the products of .cta_group::2: the even CTA issues, each CTA has
// half of the rows of Q, of the keys of K and of the columns of V in its shared memory, and half of the rows of S and O
// in its Tensor Memory. Up to head_dim_v 256 a product then has 256 rows, 128 for each CTA. Beyond, it has 128: a CTA
// has 64 rows, and they are folded: lane l holds row l % 64, the lower half of the lanes the first half of a product's
// columns, the upper half the second. So 512 columns of O take 256 of Tensor Memory, and S finds room beside them.
//
// Shared tiles are panels of one swizzle span: [columns / span][rows][span]. Tensor maps are those of spec/fmha.h with
// the boxes below; v with v_layout k is [batch, heads_kv, head_dim_v, seqlen_k], its map {seqlen_k, head_dim_v, heads,
// batch} of rank 4.
//
// Beside spec/fmha.h:
//   rows    with pack_gqa only used_rows_of_tile of a tile's rows hold queries: tiles = ceil_div(seqlen_q *
//           padded_heads, used_rows_of_tile) * heads_kv * batch; one CTA an SM
//   pools   kv_pools sparse_window: k [seqlen_k, head_dim] and v [seqlen_k, head_dim_v] have maps of rank 2, boxes of
//           one row of a span, which gather4 loads four of. Behind lse come TensorMap swa_k, swa_v (as k and v of
//           spec/fmha.h, seqlen_swa keys), int* indices [batch, seqlen_q, topk], int* topk_lens [batch, seqlen_q],
//           which may be null, int* swa_lens [batch], float* sink [heads_q], which may be null, int topk, seqlen_swa.
//           heads_kv is 1; topk + seqlen_swa at most 2^31 - 2^16
//
//   kv8     kv_dtype e4m3: k and v have maps of 8 bits without a swizzle, and four warps behind the softmax widen what
//           they bring (spec/fmha_tcgen05_smem.h). Behind softmax_scale, or the parameters of placed keys, come float*
//           k_descale, v_descale, of [batch, heads_kv], which may be null (1), long long k_descale_stride_batch,
//           k_descale_stride_head, the same of v. They multiply the scale of the scores and a finished row of O.
//           With v_is_k there is no v_descale, and that of k multiplies both; bytes come to the slot that they fill
//   e4m3    dtype e4m3: products of kind::f8f6f4, P in e4m3 too. A row's reference begins 2^kLowered below its maximum,
//           so that of P's numbers, up to 2^8 of 448, those count that are up to 2^(10 + kLowered) smaller; sums of
//           rows are those of P before it is rounded. V lies token-major, as every cache has it, and is an MN-major B.
//           The entry has float* q_descale before k_descale, and its strides before theirs; it multiplies the scale of
//           the scores
//   latent  v_is_k on: there is no v and no map of it; block after block is K of the one product and, with its first
//           head_dim_v columns, V of the other, whose commit gives its slot back. Products have 64 rows in one CTA,
//           half of each warp's lanes: S in two of half the keys and O in two of half the columns, the second from lane
//           16 on
//   listed  v_is_k on with kv_pools, head_dim 576 or 512: four warps behind the softmax gather a block's keys, 16 each,
//           those of the query's list and behind them the window's, or a second list's, in one row. There is no map of
//           k, and behind lse come void* swa_k, int* indices, topk_lens, swa_lens, swa_indices, float* sink, int topk,
//           seqlen_swa, swa_rows; behind softmax_scale void* k_keys and three strides, as in spec/fmha_latent.h, which
//           says what they are, of rows and of a cache (kv_cache)
//   ragged  a sequence's queries are as many tiles as they fill, and the last one's rows leave one by one, from Tensor
//           Memory to o_rows. split_kv is on or off: where it is on, parts and statistics of rows are those of one
//           sequence of seqlen_q queries, and the merge takes cu_seqlens_q behind sink
//
// No Blackwell device has run any of this: ptxas takes it, and the emulator executes it.
#pragma once

#include "spec/fmha_tcgen05_config.h"
#include "spec/fmha_tcgen05_smem.h"
#include "spec/kernel_parts.h"

namespace tessera::fmha_tcgen05 {

using common::Role;

inline constexpr int kGatheredKeys = 64;  // of a block
inline constexpr int kLowered = 6;        // powers of two, of references beside P of 8 bits

// Registers per thread: at entry, as the launch bounds deal them, and after setmaxnreg. A softmax thread holds a row of
// S, 128 values.
struct RegisterBudget {
  int entry = 0;
  int control = 0;
  int correction = 0;
  int softmax = 0;
  int widening = 0;
};

TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  // A block's keys are in the registers of those that gather until their slot is free; S has 32 values a thread.
  if (gathers(c)) return {128, 88, 96, 168, 160};
  if (widens_keys(c.facts))
    return q_tiles(c) == 2 ? RegisterBudget{96, 72, 64, 136, 72} : RegisterBudget{128, 88, 96, 232, 96};
  return q_tiles(c) == 2 ? RegisterBudget{128, 64, 64, 192} : RegisterBudget{168, 128, 136, 240};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_latent(const Config& c) {
  if (!is_latent(c)) return {};
  if (gathers(c)) {
    if (c.facts.head_dim != kLatentHeadDim && c.facts.head_dim != kLatentHeadDimV)
      return {Rule::latent_head_dim_of_pools, c.facts.head_dim, kLatentHeadDimV};
    if (c.tile_n != kGatheredKeys) return {Rule::gathered_keys_tile, c.tile_n, kGatheredKeys};
    if (c.swizzle != Swizzle::b128) return {Rule::gathered_keys_swizzle, swizzle_span_bytes(c.swizzle), 128};
    if (c.kv_copy != KvCopy::cp_async) return {Rule::gathered_keys_need_threads, 0, 1};
  } else if (c.facts.head_dim != kLatentHeadDim) {
    return {Rule::latent_head_dim, c.facts.head_dim, kLatentHeadDim};
  }
  if (c.facts.head_dim_v != kLatentHeadDimV) return {Rule::latent_head_dim_v, c.facts.head_dim_v, kLatentHeadDimV};
  if (c.cta_pair) return {Rule::latent_in_pair, 2, 1};
  if (c.stages < 2) return {Rule::latent_needs_two_stages, c.stages, 2};
  const int others = (c.facts.output == Output::unnormalized) + (c.facts.v_layout == Layout::k_major) +
                     (c.facts.kv_layout == KvLayout::ragged) + (c.kv_copy == KvCopy::cp_async && !gathers(c));
  if (others != 0) return {Rule::latent_needs_plain_facts, others, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_head_dims(const Config& c) {
  const int multiple = c.cta_pair || is_8_bit(c.facts) ? 32 : 8;
  const int head_dims[] = {c.facts.head_dim, c.facts.head_dim_v};
  for (const int head_dim : head_dims) {
    if (head_dim < 16 || head_dim % multiple != 0) return {Rule::head_dim_not_multiple_of_8, head_dim, multiple};
    if (head_dim > kMaxHeadDim && !is_latent(c)) return {Rule::head_dim_out_of_range, head_dim, kMaxHeadDim};
  }
  if (c.facts.head_dim_v > c.facts.head_dim)
    return {Rule::head_dim_v_exceeds_head_dim, c.facts.head_dim_v, c.facts.head_dim};
  if (c.facts.head_dim_v > kMaxProductN && !is_folded(c))
    return {Rule::head_dim_v_needs_pair, c.facts.head_dim_v, kMaxProductN};
  const int span = swizzle_span_bytes(c.swizzle);
  const int q_bytes = qk_columns(c) * dtype_bytes(c.facts.dtype);
  if (q_bytes % span != 0) return {Rule::head_dim_not_multiple_of_span, q_bytes, span};
  // O leaves in spans too, whatever the layout of V.
  const int columns = c.facts.v_layout == Layout::mn_major ? v_columns(c) : pv_columns(c);
  const int v_bytes = columns * dtype_bytes(c.facts.dtype);
  if (v_bytes % span != 0) return {Rule::head_dim_not_multiple_of_span, v_bytes, span};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_pools(const Config& c) {
  if (!has_pools(c.facts)) return {};
  if (q_tiles(c) != 1) return {Rule::pools_need_one_q_tile, q_tiles(c), 1};
  const int span = swizzle_span_bytes(c.swizzle);
  if (span < 32) return {Rule::pools_need_wider_swizzle, span, 32};
  const int others = (c.facts.seqused != UsedLengths::none) + (c.facts.window != Window::none) +
                     (is_split(c) && !gathers(c)) + (c.facts.v_layout == Layout::k_major) +
                     (c.facts.output == Output::unnormalized) + is_ragged(c.facts);
  if (others != 0) return {Rule::pools_need_dense_facts, others, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_cache(const Config& c) {
  if (!has_cache(c.facts)) return {};
  const int columns = cache_columns(cache_of(c.facts));
  if (c.facts.head_dim != columns) return {Rule::head_dim_not_of_cache, c.facts.head_dim, columns};
  if (c.facts.dtype != DType::bf16) return {Rule::cache_not_beside_bf16, 1, 0};
  if (!is_page_size(c.facts.page_size)) return {Rule::page_size_unknown, c.facts.page_size, 256};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_keys(const Config& c) {
  const bool is_paged = c.facts.kv_layout == KvLayout::paged;
  if (!is_paged && !has_cache(c.facts) && c.facts.page_size != 0)
    return {Rule::page_size_without_pages, c.facts.page_size, 0};
  if (c.facts.kv_layout == KvLayout::dense) {
    if (c.kv_copy != KvCopy::tma && !gathers(c)) return {Rule::kv_copy_of_dense_keys, 1, 0};
    return {};
  }
  if (is_paged && !is_page_size(c.facts.page_size)) return {Rule::page_size_unknown, c.facts.page_size, 256};
  if (is_paged && c.facts.seqused == UsedLengths::none) return {Rule::pages_without_lengths, 0, 1};
  if (is_paged && c.kv_copy == KvCopy::tma && c.facts.page_size < 8)
    return {Rule::page_too_small_for_tma, c.facts.page_size, 8};
  if (c.cta_pair) return {Rule::placed_keys_in_pair, 2, 1};
  const int others = (c.facts.v_layout == Layout::k_major) + has_pools(c.facts);
  if (others != 0) return {Rule::placed_keys_need_dense_facts, others, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_descaled_keys(const Config& c) {
  if (!has_descales(c.facts)) return {};
  if (c.facts.v_layout == Layout::k_major) return {Rule::descaled_keys_need_mn_major, 1, 0};
  if (!widens_keys(c.facts)) return {};
  if (has_key_scales(c.facts)) {
    const bool is_known = c.facts.head_dim == 64 || c.facts.head_dim == 128 || c.facts.head_dim == 256;
    const int others = (c.facts.dtype != DType::bf16) + (c.facts.kv_layout != KvLayout::paged) + is_latent(c) +
                       (!is_known || c.facts.head_dim_v != c.facts.head_dim);
    if (others != 0) return {Rule::facts_of_scaled_keys, others, 0};
    if (c.kv_copy != KvCopy::tma) return {Rule::scaled_keys_need_tma, 1, 0};
  }
  if (c.cta_pair) return {Rule::widened_keys_in_pair, 2, 1};
  if (q_tiles(c) == 2 && c.tile_n > 64) return {Rule::widened_keys_of_two_q_tiles, c.tile_n, 64};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.facts.dtype != DType::f16 && c.facts.dtype != DType::bf16 && c.facts.dtype != DType::e4m3)
    return {Rule::dtype_not_16_bit, dtype_bytes(c.facts.dtype), 2};
  const Verdict<Rule> of_latent = why_invalid_latent(c);
  if (!of_latent.ok()) return of_latent;
  const Verdict<Rule> of_head_dims = why_invalid_head_dims(c);
  if (!of_head_dims.ok()) return of_head_dims;
  const int rows = rows_per_product(c);
  if (c.tile_m < rows || c.tile_m % rows != 0) return {Rule::tile_m_not_whole_products, c.tile_m, rows};
  if (c.tile_m > 2 * rows) return {Rule::tile_m_out_of_range, c.tile_m, 2 * rows};
  const int keys = 32 * folds(c);
  if (c.tile_n < keys || c.tile_n % keys != 0) return {Rule::tile_n_not_multiple_of_32, c.tile_n, keys};
  if (c.tile_n > kMaxTileN) return {Rule::tile_n_out_of_range, c.tile_n, kMaxTileN};
  if (c.facts.v_layout == Layout::k_major && c.tile_n % span_elements(c) != 0) {
    return {Rule::tile_n_not_multiple_of_span, c.tile_n * dtype_bytes(c.facts.dtype), swizzle_span_bytes(c.swizzle)};
  }
  if (c.stages < 1 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (is_folded(c) && c.p_path == ProbabilityPath::tmem) return {Rule::folded_p_in_tmem, rows_per_cta(c), 128};
  if (c.facts.v_layout == Layout::k_major && c.facts.seqused != UsedLengths::none) {
    return {Rule::k_major_v_of_used_keys, dtype_bytes(c.facts.dtype), 16};
  }
  if (c.pack_gqa < 1 || c.pack_gqa > kMaxPackedHeads) {
    return {Rule::pack_gqa_out_of_range, c.pack_gqa, kMaxPackedHeads};
  }
  if (c.facts.split_size < 0 || c.facts.split_size % c.tile_n != 0)
    return {Rule::split_size_not_of_tiles, c.facts.split_size, c.tile_n};
  const Verdict<Rule> of_keys = why_invalid_keys(c);
  if (!of_keys.ok()) return of_keys;
  const Verdict<Rule> of_pools = why_invalid_pools(c);
  if (!of_pools.ok()) return of_pools;
  const Verdict<Rule> of_cache = why_invalid_cache(c);
  if (!of_cache.ok()) return of_cache;
  const Verdict<Rule> of_descaled = why_invalid_descaled_keys(c);
  if (!of_descaled.ok()) return of_descaled;
  if (used_columns(c) > kTmemColumns) return {Rule::tensor_memory_exceeded, used_columns(c), kTmemColumns};
  const int bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

TESSERA_HD constexpr int num_roles(const Config& c) { return makes_keys(c) ? 7 : 6; }
inline constexpr int kWarpOfKv = 0;
inline constexpr int kWarpOfQ = 1;
inline constexpr int kWarpOfO = 2;
inline constexpr int kWarpOfMma = 3;
// Warps are numbered by roles, warpgroup by warpgroup: control, correction, softmax, and what makes keys. With three
// buffers of S the softmax's stand first and the control warps behind the correction's: the issuer shares a sub-core
// with two warps of the softmax that are busy all the time, and can wait where they cannot.
TESSERA_HD constexpr int warp_at(const Config& c, int place) {
  if (!has_third_buffer(c) || place >= 16) return place;
  return place < 8 ? place + 8 : place < 12 ? place - 4 : place - 12;
}
TESSERA_HD constexpr int place_of(const Config& c, int warp) {
  if (!has_third_buffer(c) || warp >= 16) return warp;
  return warp >= 8 ? warp - 8 : warp >= 4 ? warp + 4 : warp + 12;
}

TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  // In the order of their warps.
  switch (!has_third_buffer(c) || index > 5 ? index : index == 0 ? 5 : index == 1 ? 4 : index - 2) {
    case 0:
      return {"load_kv", place_of(c, kWarpOfKv), 1, budget.control};
    case 1:
      return {"load_q", place_of(c, kWarpOfQ), 1, budget.control};
    case 2:
      return {"store_o", place_of(c, kWarpOfO), 1, budget.control};
    case 3:
      return {"mma", place_of(c, kWarpOfMma), 1, budget.control};
    case 4:
      return {"correction", place_of(c, 4), 4, budget.correction};
    case 5:
      return {"softmax", place_of(c, 8), 4 * q_tiles(c), budget.softmax};
    default:
      return {gathers(c) ? "gather" : "widen_kv", 8 + 4 * q_tiles(c), kWideningWarps, budget.widening};
  }
}

// A TMA box, innermost first: {span, rows, panels, 1 head, 1 batch}; K-major V: {span, columns, 1, 1}.
using TmaBox = common::TmaBox<5>;

// Packed, q and o have maps {head_dim, pack_gqa, seqlen_q, heads_kv, batch}, a box for each panel.
TESSERA_HD constexpr int panels_of_box(const Config& c, int panels) { return is_padded(c.facts) ? 1 : panels; }
TESSERA_HD constexpr TmaBox q_box(const Config& c) {
  if (is_packed(c)) return {{span_elements(c), packed_heads(c), packed_queries(c), 1, 1}};
  return {{span_elements(c), rows_per_cta(c), panels_of_box(c, qk_columns(c) / span_elements(c)), 1, 1}};
}
// Of keys that do not lie dense, or have 8 bits. A box of fewer keys than a block's has one panel.
TESSERA_HD constexpr TmaBox kv_box(const Config& c, int columns) {
  const int span = key_span_bytes(c.facts, c.swizzle, columns) / dtype_bytes(key_dtype(c.facts));
  const int keys = box_keys(c.facts.kv_layout, c.facts.page_size, c.tile_n);
  return {{span, keys, keys == c.tile_n ? panels_of_box(c, key_elements(c.facts, columns) / span) : 1, 1, 1}};
}
TESSERA_HD constexpr bool has_kv_box(const Config& c) {
  return c.facts.kv_layout != KvLayout::dense || widens_keys(c.facts);
}
TESSERA_HD constexpr TmaBox k_box(const Config& c) {
  if (has_kv_box(c)) return kv_box(c, qk_columns(c));
  return {{span_elements(c), k_rows(c), panels_of_box(c, qk_columns(c) / span_elements(c)), 1, 1}};
}
TESSERA_HD constexpr TmaBox v_box(const Config& c) {
  if (has_kv_box(c)) return kv_box(c, v_columns(c));
  if (c.facts.v_layout == Layout::k_major) return {{span_elements(c), v_columns(c), 1, 1, 1}};
  return {{span_elements(c), c.tile_n, panels_of_box(c, v_columns(c) / span_elements(c)), 1, 1}};
}
// O leaves in o_passes() boxes, none larger than its Q slot: fp32 needs two, by columns; beside 8 bits twice as many.
TESSERA_HD constexpr int o_passes(const Config& c) {
  return is_split(c) ? 1 : o_element_bytes(c.facts) / dtype_bytes(c.facts.dtype);
}
TESSERA_HD constexpr int o_pass_columns(const Config& c) { return vo_columns(c) / o_passes(c); }
TESSERA_HD constexpr TmaBox o_box(const Config& c) {
  if (is_packed(c)) return {{o_span_elements(c), packed_heads(c), packed_queries(c), 1, 1}};
  return {{o_span_elements(c), rows_per_cta(c), panels_of_box(c, o_pass_columns(c) / o_span_elements(c)), 1, 1}};
}

}  // namespace tessera::fmha_tcgen05
