// Q, K and V of attention in NVFP4: means out, quantised, in the units of spec/nvfp4_units.h that attention reads.
//
//   k_mean = mean of k over a sequence's keys             k' = k - k_mean
//   q_mean = mean of q over a block of 128 queries        q' = q - q_mean
//   delta_s[block, key] = q_mean[block] . k'[key]         row_shift[query] = q[query] . k_mean
//
// so that q . k = q' . k' + delta_s + row_shift exactly, and only q' and k', which have no common part, are rounded to
// 4 bits. row_shift is the same for all keys of a query: o does without, lse takes it.
//
//   scale = ue4m3(amax / 6) of 16 neighbours (q', k': columns; v: keys), value = e2m1(x / scale), nearest even. Where
//   the scale is 0, below 2^-10, values are 0. Magnitudes above 2,688 saturate.
//
// Sums are fp32, in an order that depends on sizes alone. Queries and keys behind a sequence's last, up to a whole
// block, are written as zeros; so is delta_s there.
//
// Sequences (templates/attention/nvfp4_sequences.cuh): queries dense or ragged (cu_seqlens_q), keys dense, ragged
// (cu_seqlens_k) or in pages of a pool (block_table, seqused_k); with seqused k a sequence has fewer keys than places,
// with qk fewer queries too. Keys in pages become dense ones. What no sequence has is not written.
//
// Three steps: `means` has a CTA for each block of q or k and each head, and writes q_mean, and sums of k to the
// workspace; `mean_of_keys` adds those up; `quantize` has a CTA for each block of q, of k and of v. All are dense:
//   q     u8  [heads_q, q_blocks, q_block_bytes]        q_blocks = batch * ceil(seqlen_q / 128)
//   k, v  u8  [heads_kv, key_blocks, key_block_bytes]   key_blocks = batch * ceil(seqlen_k / 128)
//         ragged: ceil(seqlen_q / 128) + batch, ceil(tokens_k / 128) + batch
//   q_mean f32 [heads_q, q_blocks, head_dim]; k_mean f32 [heads_kv, batch, head_dim]
//   delta_s f32 [heads_q, q_blocks, 128 * ceil(seqlen_k / 128)]; row_shift f32 [batch, heads_q, seqlen_q],
//   ragged [heads_q, seqlen_q]
#pragma once

#include "spec/nvfp4_units.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/types.h"

namespace tessera::attention_quantize {

struct Config {
  int head_dim = 128;
  DType dtype = DType::bf16;  // of q, k and v as they come
  QueryLayout q_layout = QueryLayout::dense;
  KvLayout kv_layout = KvLayout::dense;
  int page_size = 0;  // of kv_layout paged
  UsedLengths seqused = UsedLengths::none;
  Conversion conversion = Conversion::hardware;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kThreads = 256;
// CTAs of an SM, for __launch_bounds__: 80 registers a thread. Without this number the assembler took 48, and spilled.
inline constexpr int kMinCtas = 3;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_16_bit,        // bytes of an element; 2
  head_dim_not_64_or_128,  // head_dim; 128
  page_size_unknown,       // page_size; 256
  ragged_queries_used,     // 1; 0
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::bf16 && c.dtype != DType::f16) return {Rule::dtype_not_16_bit, dtype_bytes(c.dtype), 2};
  if (!nvfp4::is_head_dim(c.head_dim)) return {Rule::head_dim_not_64_or_128, c.head_dim, 128};
  const bool is_paged = c.kv_layout == KvLayout::paged;
  if (is_paged ? !is_page_size(c.page_size) : c.page_size != 0) return {Rule::page_size_unknown, c.page_size, 256};
  if (c.q_layout == QueryLayout::ragged && c.seqused == UsedLengths::qk) return {Rule::ragged_queries_used, 1, 0};
  return {};
}

// Sums of a block's rows: threads have two columns each, of rows that are stripes() apart.
TESSERA_HD constexpr int stripes(const Config& c) { return kThreads / (c.head_dim / 2); }
// Keys of a block without their mean, a row for each, with room so that neighbouring rows begin in different banks.
TESSERA_HD constexpr int pitch(const Config& c) { return c.head_dim + 1; }
// Of every step: sums of stripes, or keys.
TESSERA_HD constexpr int smem_bytes(const Config& c) { return nvfp4::kBlockRows * pitch(c) * 4; }
TESSERA_HD constexpr int sums_bytes(const Config& c) { return stripes(c) * c.head_dim * 4; }

}  // namespace tessera::attention_quantize
