// c = alpha * A b for block-scaled A and b: A [l, m, k], b [l, b_rows, k] of which row 0 counts, c [l, m] in f32, f16
// or bf16. Both are nvfp4, or each is mxfp4, mxfp8_e4m3 or mxfp8_e5m2.
//
// e2m1 by e2m1: 16 products are summed without any rounding. e2m1 numbers are halves, so their doubled values are
// whole numbers up to 12, and 16 products' sum is at most 2,304 quarters. Software conversion looks up the doubled
// values as bytes and takes dp4a; hardware conversion makes f16 pairs and takes fma, whose two halves hold at most
// 1,152 quarters each. Two such sums are mxfp4's block, exactly. Where a or b has 8 bits the products, exact too, are
// added in fp32, those of a lane's 16 or 32 elements of a block one after the other.
//
// Sums times both scales are added in fp32, one rounding each; then lanes by halves, then the warps that share a row in
// their order: the same order always. The product of both scales is rounded to fp32: exact for ue4m3; of ue8m0 from
// 2^128 on infinite, below 2^-149 0.
//
// A CTA of 8 warps has 8 / k_warps groups of warp_rows rows; the warps of a group take turns along k, 16 bytes of a row
// for each lane. b comes first: every CTA converts a panel of it (k_panel elements) into shared memory, with the block
// scales as fp32 beside it. Rows of a group are neighbours with plain scales and lie 32 apart in the tile form, where
// the scales of such four rows are 16 neighbouring bytes.
//
// Entry parameters, in this order:
//   const void* a, sfa, b, sfb; void* c
//   const float* a_global_scale, b_global_scale   may be null: 1
//   int m, k, row_tiles_b; long long b_stride, sfb_stride (bytes from batch to batch)
//   float alpha
// Launch: grid {ceil(m / rows) or, tile form, ceil(m / 128) * 128 / rows with rows = rows_of_cta(); l; 1}, block
// {256, 1, 1}, dynamic shared memory smem_bytes(). k is a multiple of 32: 16 bytes of e2m1, a block of MX formats.
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera::gemv {

inline constexpr int kWarps = 8;
inline constexpr int kNumThreads = kWarps * 32;
inline constexpr int kLaneBytes = 16;  // of a row of A, of a lane in one step
inline constexpr int kUnit = 16;       // elements that are converted together
inline constexpr int kKMultiple = 32;

struct Config {
  DType dtype = DType::f16;                   // of c
  BlockFormat format = BlockFormat::nvfp4;    // of A
  BlockFormat b_format = BlockFormat::nvfp4;  // of b
  ScaleForm scale_form = ScaleForm::plain;
  Conversion conversion = Conversion::software;
  int warp_rows = 4;  // rows of a warp
  int k_warps = 1;    // warps that share a row
  int k_panel = 16384;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxSmemBytes = 49152;  // of a CTA, without opting in

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,       // bytes of an element; 4
  blocks_differ,            // elements of a block of b; of A
  warp_rows_not_supported,  // warp_rows; 4
  tile_form_needs_4_rows,   // warp_rows; 4
  k_warps_not_dividing,     // k_warps; 8
  k_panel_not_whole_steps,  // k_panel; step_elements() * k_warps
  shared_memory_exceeded,   // bytes; 49,152
};

// Elements of a lane and of a warp in one step; elements that share a scale, and scales of a lane in a step.
TESSERA_HD constexpr int lane_elements(const Config& c) { return kLaneBytes * 8 / value_bits(c.format); }
TESSERA_HD constexpr int step_elements(const Config& c) { return 32 * lane_elements(c); }
TESSERA_HD constexpr int block(const Config& c) { return block_elements(c.format); }
TESSERA_HD constexpr int lane_blocks(const Config& c) {
  return lane_elements(c) > block(c) ? lane_elements(c) / block(c) : 1;
}

// How b's values lie in shared memory, and what multiplies them.
enum class Products {
  bytes,   // doubled e2m1 as signed bytes, dp4a
  halves,  // f16 pairs, fma on pairs
  floats,  // fp32
};
TESSERA_HD constexpr Products products(const Config& c) {
  if (value_bits(c.format) == 8 || value_bits(c.b_format) == 8) return Products::floats;
  return c.conversion == Conversion::software ? Products::bytes : Products::halves;
}
TESSERA_HD constexpr int value_bytes_of_b(const Config& c) {
  return products(c) == Products::bytes ? 1 : products(c) == Products::halves ? 2 : 4;
}
// Pieces of 16 bytes of b that a lane multiplies in one step.
TESSERA_HD constexpr int lane_pieces(const Config& c) { return lane_elements(c) * value_bytes_of_b(c) / 16; }

// CTAs of an SM, for __launch_bounds__: 64 registers a thread, or 80 where four rows and more need them.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  if (products(c) == Products::floats) return c.warp_rows == 4 ? 3 : 4;
  return c.warp_rows == 4 && (c.scale_form == ScaleForm::plain || c.k_warps > 1) ? 3 : 4;
}

TESSERA_HD constexpr int rows_of_cta(const Config& c) { return kWarps / c.k_warps * c.warp_rows; }

// Shared memory: b's values, block scales as fp32, sums of the warps that share rows.
TESSERA_HD constexpr int value_bytes_of_panel(const Config& c) { return c.k_panel * value_bytes_of_b(c); }
TESSERA_HD constexpr int scale_bytes_of_panel(const Config& c) { return c.k_panel / block(c) * 4; }
TESSERA_HD constexpr int sum_bytes(const Config& c) { return kWarps * c.warp_rows * 4; }
TESSERA_HD constexpr int smem_bytes(const Config& c) {
  return value_bytes_of_panel(c) + scale_bytes_of_panel(c) + sum_bytes(c);
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f32 && c.dtype != DType::f16 && c.dtype != DType::bf16)
    return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (block_elements(c.b_format) != block(c)) return {Rule::blocks_differ, block_elements(c.b_format), block(c)};
  if (c.warp_rows != 1 && c.warp_rows != 2 && c.warp_rows != 4) return {Rule::warp_rows_not_supported, c.warp_rows, 4};
  if (c.scale_form == ScaleForm::tile && c.warp_rows != 4) return {Rule::tile_form_needs_4_rows, c.warp_rows, 4};
  if (c.k_warps < 1 || c.k_warps > kWarps || kWarps % c.k_warps != 0)
    return {Rule::k_warps_not_dividing, c.k_warps, kWarps};
  if (c.k_panel < 1 || c.k_panel % (step_elements(c) * c.k_warps) != 0)
    return {Rule::k_panel_not_whole_steps, c.k_panel, step_elements(c) * c.k_warps};
  if (smem_bytes(c) > kMaxSmemBytes) return {Rule::shared_memory_exceeded, smem_bytes(c), kMaxSmemBytes};
  return {};
}

}  // namespace tessera::gemv
