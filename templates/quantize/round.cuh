// Sixteen fp32 numbers to the values of a format, packed: 8 bytes of e2m1, 16 of fp8.
//
// e2m1 without an instruction for it. Its numbers below 2 are multiples of 1/2, those in [2, 4) of 1, those above of 2:
// with p the power of two below max(|q|, 1), adding 1.5 * 2^22 p makes the adder round |q| to a multiple of p / 2, to
// nearest even, once. What is left after subtracting it again is exact in fp16, and times 2^-14 it has e2m1's exponent
// and mantissa in bits 9 to 11, as a number or as a subnormal; from there they are gathered.
//
// Two at a time, where x has 16 bits and d, the scale's value, four significant bits or one. The numbers at which e2m1
// rounds up have three, so a boundary b times d has at most seven, and if x is not b d it differs by at least an ulp of
// x: x / d is either b or away from it by more than half an ulp of f16 there. So f16 is fine enough to round to on the
// way, and x times an approximate 1 / d is good enough to start from: what should be b is b after it, the rest stays on
// its side.
// Where d has 24 bits: quotient.cuh.
#pragma once

#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "tessera/spec/block_scale.h"

namespace tessera::quantize {

// |q| < 7, or NaN (which has no sign here). The code times 2^-14, as a number.
__device__ __forceinline__ float round_e2m1(float q) {
  constexpr float kMagic = 6291456.0f;  // 1.5 * 2^22
  const float p = __uint_as_float(__float_as_uint(fmaxf(fabsf(q), 1.0f)) & 0x7f800000u);
  const float rounded = __fmaf_rn(p, -kMagic, __fmaf_rn(p, kMagic, fabsf(q)));
  // The sum of nothing has no sign: it comes from q.
  return __uint_as_float((__float_as_uint(rounded) & 0x7fffffffu) | (__float_as_uint(q) & 0x80000000u));
}

// Eight numbers to a word. pairs: (q[2 i], q[2 i + 1]) as f16, times 2^-14.
__device__ __forceinline__ unsigned gather_e2m1(const unsigned (&pairs)[4]) {
  // The high bytes of both halves hold sign, ., ., ., exponent (2), mantissa, 0.
  const unsigned first = ptx::prmt(pairs[0], pairs[1], 0x7351u);
  const unsigned last = ptx::prmt(pairs[2], pairs[3], 0x7351u);
  const unsigned even = ptx::prmt(first, last, 0x5410u);
  const unsigned odd = ptx::prmt(first, last, 0x7632u);
  return ((even >> 4) & 0x08080808u) | ((even >> 1) & 0x07070707u) | (odd & 0x80808080u) | ((odd << 3) & 0x70707070u);
}

// Eight, starting with q[kFirst], to a word.
template <int kFirst = 0, int kCount>
__device__ __forceinline__ unsigned encode_e2m1_word(const float (&q)[kCount]) {
  constexpr unsigned kTwoToMinus14 = 0x04000400u;
  unsigned pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = ptx::mul_f16x2(
        ptx::cvt_pack<DType::f16>(round_e2m1(q[kFirst + 2 * i]), round_e2m1(q[kFirst + 2 * i + 1])), kTwoToMinus14);
  return gather_e2m1(pairs);
}

__device__ __forceinline__ void encode_e2m1_software(const float (&q)[16], unsigned (&words)[2]) {
  words[0] = encode_e2m1_word<0>(q);
  words[1] = encode_e2m1_word<8>(q);
}

// Two quotients in f16, any magnitude (infinity and NaN become 6), to their codes times 2^-14. As above, with ulps of
// f16: 1.5 * 2^9 p has an ulp of p / 2.
__device__ __forceinline__ unsigned round_e2m1_pair(unsigned q) {
  constexpr unsigned kOne = 0x3c003c00u, kSix = 0x46004600u, kMagic = 0x62006200u, kMinusMagic = 0xe200e200u;
  constexpr unsigned kTwoToMinus14 = 0x04000400u;
  const unsigned magnitude = ptx::min_abs_f16x2(kSix, q);
  const unsigned p = ptx::max_f16x2(magnitude, kOne) & 0x7c007c00u;
  const unsigned rounded = ptx::fma_f16x2(p, kMinusMagic, ptx::fma_f16x2(p, kMagic, magnitude));
  return ptx::mul_f16x2(rounded, kTwoToMinus14) | (q & 0x80008000u);
}

// x[i] * factor to e2m1, where x and the factor are as the head of this file asks.
__device__ __forceinline__ void encode_e2m1_pairs(const float (&x)[16], float factor, unsigned (&words)[2]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = round_e2m1_pair(
          ptx::cvt_pack<DType::f16>(__fmul_rn(x[8 * w + 2 * i], factor), __fmul_rn(x[8 * w + 2 * i + 1], factor)));
    words[w] = gather_e2m1(pairs);
  }
}

__device__ __forceinline__ void encode_e2m1_hardware(const float (&q)[16], unsigned (&words)[2]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const float* const x = q + 8 * w;
    words[w] = ptx::cvt_e2m1x2(x[0], x[1]) | ptx::cvt_e2m1x2(x[2], x[3]) << 8 | ptx::cvt_e2m1x2(x[4], x[5]) << 16 |
               ptx::cvt_e2m1x2(x[6], x[7]) << 24;
  }
}

// Four to a word.
template <ValueType kType, int kCount, int kWords>
__device__ __forceinline__ void encode_fp8_words(const float (&q)[kCount], unsigned (&words)[kWords]) {
  static_assert(kCount == 4 * kWords);
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const float* const x = q + 4 * w;
    if constexpr (kType == ValueType::e4m3) {
      words[w] = ptx::cvt_e4m3x2(x[0], x[1]) | ptx::cvt_e4m3x2(x[2], x[3]) << 16;
    } else {
      words[w] = ptx::cvt_e5m2x2(x[0], x[1]) | ptx::cvt_e5m2x2(x[2], x[3]) << 16;
    }
  }
}

}  // namespace tessera::quantize
