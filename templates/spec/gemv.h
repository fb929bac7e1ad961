// c = alpha * A b for NVFP4: A [l, m, k], b [l, b_rows, k] of which row 0 counts, c [l, m] in f32, f16 or bf16.
//
// Of a block of 16 the products are summed without any rounding: e2m1 numbers are halves, so their doubled values are
// whole numbers up to 12, and a block's sum is at most 2,304 quarters. Software conversion looks up the doubled values
// as bytes and takes dp4a; hardware conversion makes f16 pairs and takes fma, whose two halves hold at most 1,152
// quarters each. Block sums times both scales (exact in fp32) are added in fp32, one rounding each; then lanes by
// halves, then the warps that share a row in their order: the same order always.
//
// A CTA of 8 warps has 8 / k_warps groups of warp_rows rows; the warps of a group take turns along k, 1,024 elements
// each. b comes first: every CTA converts a panel of it (k_panel elements) into shared memory, with the block scales as
// fp32 beside it. Rows of a group are neighbours with plain scales and lie 32 apart in the tile form, where the scales
// of such four rows are 16 neighbouring bytes.
//
// Entry parameters, in this order:
//   const void* a, sfa, b, sfb; void* c
//   const float* a_global_scale, b_global_scale   may be null: 1
//   int m, k, row_tiles_b; long long b_stride, sfb_stride (bytes from batch to batch)
//   float alpha
// Launch: grid {ceil(m / rows) or, tile form, ceil(m / 128) * 128 / rows with rows = rows_of_cta(); l; 1}, block
// {256, 1, 1}, dynamic shared memory smem_bytes(). k is a multiple of 32: 16 bytes of A.
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera::gemv {

inline constexpr int kWarps = 8;
inline constexpr int kNumThreads = kWarps * 32;
inline constexpr int kLaneElements = 32;                  // of a lane in one step: 16 bytes of A
inline constexpr int kStepElements = 32 * kLaneElements;  // of a warp

struct Config {
  DType dtype = DType::f16;  // of c
  BlockFormat format = BlockFormat::nvfp4;
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
  format_not_nvfp4,         // the format's block; 16
  warp_rows_not_supported,  // warp_rows; 4
  tile_form_needs_4_rows,   // warp_rows; 4
  k_warps_not_dividing,     // k_warps; 8
  k_panel_not_whole_steps,  // k_panel; 1,024 * k_warps
  shared_memory_exceeded,   // bytes; 49,152
};

// CTAs of an SM, for __launch_bounds__: 64 registers a thread, or 80 where four rows and more need them.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  return c.warp_rows == 4 && (c.scale_form == ScaleForm::plain || c.k_warps > 1) ? 3 : 4;
}

TESSERA_HD constexpr int rows_of_cta(const Config& c) { return kWarps / c.k_warps * c.warp_rows; }

// Shared memory: b's values, block scales as fp32, sums of the warps that share rows.
TESSERA_HD constexpr int value_bytes_of_panel(const Config& c) {
  return c.conversion == Conversion::software ? c.k_panel : 2 * c.k_panel;
}
TESSERA_HD constexpr int scale_bytes_of_panel(const Config& c) { return c.k_panel / 16 * 4; }
TESSERA_HD constexpr int sum_bytes(const Config& c) { return kWarps * c.warp_rows * 4; }
TESSERA_HD constexpr int smem_bytes(const Config& c) {
  return value_bytes_of_panel(c) + scale_bytes_of_panel(c) + sum_bytes(c);
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f32 && c.dtype != DType::f16 && c.dtype != DType::bf16)
    return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.format != BlockFormat::nvfp4) return {Rule::format_not_nvfp4, block_elements(c.format), 16};
  if (c.warp_rows != 1 && c.warp_rows != 2 && c.warp_rows != 4) return {Rule::warp_rows_not_supported, c.warp_rows, 4};
  if (c.scale_form == ScaleForm::tile && c.warp_rows != 4) return {Rule::tile_form_needs_4_rows, c.warp_rows, 4};
  if (c.k_warps < 1 || c.k_warps > kWarps || kWarps % c.k_warps != 0)
    return {Rule::k_warps_not_dividing, c.k_warps, kWarps};
  if (c.k_panel < 1 || c.k_panel % (kStepElements * c.k_warps) != 0)
    return {Rule::k_panel_not_whole_steps, c.k_panel, kStepElements * c.k_warps};
  if (smem_bytes(c) > kMaxSmemBytes) return {Rule::shared_memory_exceeded, smem_bytes(c), kMaxSmemBytes};
  return {};
}

}  // namespace tessera::gemv
