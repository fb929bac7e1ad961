// The inverse of quantize: y = type(value * factor), factor = scale (times g for nvfp4), the product rounded to fp32
// first. y is [l, rows, k] of f32, f16 or bf16, dense; k is a multiple of the block. Threads, warps and grid are those
// of quantize (spec/quantize.h); padding of tiles is not read.
//
// Entry parameters, in this order:
//   const void* values, scales; void* y
//   float* global_scale             given: read
//   long long groups                plain form only: l * rows * k / 16
//   int rows, k                     tile form only
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera::dequantize {

struct Config {
  DType dtype = DType::bf16;
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm scale_form = ScaleForm::plain;
  GlobalScale global_scale = GlobalScale::none;
  Conversion conversion = Conversion::software;
  int threads = 256;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxThreads = 1024;

// CTAs of an SM, for __launch_bounds__: see spec/quantize.h.
TESSERA_HD constexpr int min_ctas(const Config& c) { return c.threads >= 1024 ? 1 : 1024 / c.threads; }

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,          // bytes of an element; 4
  global_scale_without_nvfp4,  // the format's block; 16
  global_scale_not_known,      // GlobalScale::amax is quantize's; 1
  threads_not_multiple_of_32,  // threads; 32
  threads_out_of_range,        // threads; 1,024
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f32 && c.dtype != DType::f16 && c.dtype != DType::bf16)
    return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.global_scale == GlobalScale::amax) return {Rule::global_scale_not_known, 2, 1};
  if (c.global_scale != GlobalScale::none && c.format != BlockFormat::nvfp4)
    return {Rule::global_scale_without_nvfp4, block_elements(c.format), 16};
  if (c.threads < 32 || c.threads > kMaxThreads) return {Rule::threads_out_of_range, c.threads, kMaxThreads};
  if (c.threads % 32 != 0) return {Rule::threads_not_multiple_of_32, c.threads, 32};
  return {};
}

}  // namespace tessera::dequantize
