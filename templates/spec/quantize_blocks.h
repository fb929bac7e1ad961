// Rows to e4m3 with an fp32 factor for each block of 128 x 128 or 1 x 128 elements: what products with scale blocks
// read (spec/gemm.h), of weights once, of activations before each product.
//
//   most       = min(max(amax, 1e-4), largest finite fp32); amax is the block's largest magnitude, NaN left out
//   factor     = most / 448, rounded once; pow2: the least power of two that is not below it
//   value      = e4m3(x * (1 / factor)), each step rounded once, nearest even, saturating; a NaN stays one
//
// x is [l, rows, k], dense; values [l, rows, k]; factors [l, ceil(rows / 128), ceil(k / 128)] or [l, rows, ceil(k /
// 128)]. A block at the end of rows or of k has the elements that there are.
//
// A CTA has 128 x 128 elements: 16 threads a row, eight elements each, eight rows a thread; all are in registers before
// the first is used. Entry parameters: const void* x, void* values, void* factors, int rows, int k. Launch: grid
// {ceil(rows / 128) * ceil(k / 128), l}, block {256, 1, 1}, smem_bytes() of shared memory.
#pragma once

#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera::quantize_blocks {

inline constexpr int kNumThreads = 256;
inline constexpr int kVector = 8;                          // elements of a thread in a row
inline constexpr int kRowThreads = kScaleBlock / kVector;  // that share a row
inline constexpr int kRowsAtOnce = kNumThreads / kRowThreads;
inline constexpr int kVisits = kScaleBlock / kRowsAtOnce;  // rows of a thread

struct Config {
  DType dtype = DType::bf16;
  ScaleBlock scale_block = ScaleBlock::square;
  ScaleValues scale_values = ScaleValues::any;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// What each warp finds.
TESSERA_HD constexpr int smem_bytes(const Config& c) {
  return c.scale_block == ScaleBlock::square ? kNumThreads / 32 * 4 : 0;
}

enum class Rule {
  ok,
  dtype_not_floating,   // bytes of an element; 4
  scale_block_missing,  // 0; 1
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f32 && c.dtype != DType::f16 && c.dtype != DType::bf16)
    return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.scale_block == ScaleBlock::none) return {Rule::scale_block_missing, 0, 1};
  return {};
}

}  // namespace tessera::quantize_blocks
