// From a block's largest magnitude to its scale, and the quotients x / (scale * g) as IEEE division gives them.
//
// The divisor is one for 16 elements, so the division is done with its reciprocal. r1, 1 / d rounded down, and the rest
// of it, r1_low, give q = RN(x r1 + x r1_low), which is at most one unit off and has x's sign, also that of a zero. The
// remainder q d - x is exact, and RN(q - remainder * RN(1 / d)) is then the rounded quotient (Markstein). It holds
// while nothing underflows or overflows on the way: |x| <= 6.5 d and d between 2^-90 and 2^90. Blocks outside (a
// saturated scale, an infinity, a g at the edge of fp32) are brought inside first, by a power of two and a clamp that
// leave every e2m1 code as it is.
//
// With g = 1 a divisor has four significant bits: quotients on two sides of a rounding boundary are at least 2^-29
// apart, so an approximate reciprocal with one correction is enough (its error is below 2^-44).
#pragma once

#include "ptx/narrow.cuh"
#include "quantize/elements.cuh"
#include "spec/quantize.h"

namespace tessera::quantize {

// e4m3 code of a magnitude, and its value.
__device__ __forceinline__ unsigned ue4m3_code(float value) { return ptx::cvt_e4m3x2(value, 0.0f) & 0xffu; }
__device__ __forceinline__ float ue4m3_value(unsigned code) { return ptx::f32_of_low_f16(ptx::cvt_f16x2_e4m3x2(code)); }

// amax / 6 as IEEE division gives it: the product with RN(1 / 6) is within one unit, the remainder is exact. (Where it
// underflows the quotient is far below the least scale.)
__device__ __forceinline__ float sixth(float amax) {
  constexpr float kSixth = 0.16666667f;
  const float q = __fmul_rn(amax, kSixth);
  return __fmaf_rn(__fmaf_rn(-q, 6.0f, amax), kSixth, q);
}

// The power of two as tessera/spec/block_scale.h has it. The largest values are 1.5 * 2^2, 1.75 * 2^4, 1.875 * 2^2,
// 1.75 * 2^8 and 1.75 * 2^15: rounding up means one more where the significand is above that.
template <BlockFormat kFormat, ScaleRounding kRounding>
__device__ __forceinline__ unsigned ue8m0_code(float amax) {
  const unsigned bits = __float_as_uint(amax);
  constexpr unsigned kSignificand = value_type(kFormat) == ValueType::e2m1   ? 0x400000u
                                    : value_type(kFormat) == ValueType::e2m3 ? 0x700000u
                                                                             : 0x600000u;
  // Subnormal numbers have exponent field 0, far below what is clamped.
  const unsigned exponent = (kRounding == ScaleRounding::up ? bits + (0x7fffffu - kSignificand) : bits) >> 23;
  const int code = static_cast<int>(exponent) - largest_exponent(kFormat);
  return static_cast<unsigned>(code > 0 ? code : 0);
}

// What the values are multiplied by, exactly: 2^(127 - code). Codes above 253 don't occur.
__device__ __forceinline__ float inverse_power(unsigned code) { return __uint_as_float((254u - code) << 23); }

template <bool kIsShort, int kCount>
__device__ __forceinline__ void divide(float (&x)[kCount], float d) {
  const float r = kIsShort ? ptx::rcp_approx(d) : __frcp_rn(d);
  const float minus_r = -r;
  float r1 = r, r1_low = 0.0f;
  if constexpr (!kIsShort) {
    if (__fmaf_rn(-d, r, 1.0f) < 0) r1 = __uint_as_float(__float_as_uint(r) - 1);
    r1_low = __fmul_rn(__fmaf_rn(-d, r1, 1.0f), r);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float q = kIsShort ? __fmul_rn(x[i], r) : __fmaf_rn(x[i], r1, __fmul_rn(x[i], r1_low));
    // In this order of signs a zero keeps its own.
    x[i] = __fmaf_rn(__fmaf_rn(q, d, -x[i]), minus_r, q);
  }
}

// amax / unit as IEEE division gives it, for a unit that is the same for all blocks and not near the edges of fp32, to
// the scale's code: what is above 448 need not be exact. reciprocal: RN(1 / unit).
__device__ __forceinline__ float divide_by_unit(float amax, float unit, float reciprocal) {
  const float x = fminf(amax, __fmul_rn(unit, 1024.0f));
  float q = __fmul_rn(x, reciprocal);
  q = __fmaf_rn(__fmaf_rn(-q, unit, x), reciprocal, q);
  return __fmaf_rn(__fmaf_rn(-q, unit, x), reciprocal, q);
}

// x[i] becomes x[i] / d. amax: of the block, infinite where an element is. d > 0. The result is right to e2m1's code,
// and below 6.6 in magnitude, or NaN.
template <bool kIsShort, int kCount>
__device__ __forceinline__ void divide_checked(float (&x)[kCount], float d, float amax) {
  constexpr float kSmall = 0x1p-90f;
  constexpr float kLarge = 0x1p90f;
  const bool is_plain = amax <= 6.5f * d && d >= kSmall && d <= kLarge;
  if (!is_plain) {
    const float power = d < kSmall ? 0x1p80f : d > kLarge ? 0x1p-80f : 1.0f;
    d = __fmul_rn(d, power);
    const float most = __fmul_rn(6.25f, d);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = fmaxf(fminf(__fmul_rn(x[i], power), most), -most);
  }
  divide<kIsShort>(x, d);
}

}  // namespace tessera::quantize
