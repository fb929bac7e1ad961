// 2^x by the polynomial of spec/exponential.h, where why and how exactly is derived.
#pragma once

#include "ptx/max.cuh"
#include "spec/exponential.h"

namespace tessera::fmha_tcgen05 {

__device__ __forceinline__ float polynomial_exp2(float x) {
  x = ptx::max_nan(x, kExp2Lowest);
  const float shifted = x + kExp2Round;
  const float f = x - (shifted - kExp2Round);
  float p = exp2_coefficient(5);
#pragma unroll
  for (int i = 3; i >= 0; --i) p = fmaf(p, f, exp2_coefficient(i + 1));
  p = fmaf(p, f, 1.0f);
  // 2^n from the whole number in the low bits; 2^-127 is 0 here.
  return p * __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000);
}

}  // namespace tessera::fmha_tcgen05
