// Sixteen 16-bit numbers and a divisor of any 24 bits to codes of e2m1, as IEEE division and rounding to nearest even
// would give them, without a branch for those that are hard.
//
// The quotient. d is one for sixteen elements. r is 1 / d, rounded up; q0 = RN(x r) is within two units, q0 d - x is
// exact or next to it, and q = RN(q0 - (q0 d - x) r) is the rounded quotient: for every significand of d, an r0 that is
// one unit off to either side, and the numbers of 8 or 11 bits at and beside each rounding boundary (all others are far
// from one), compared with division on a CPU. A plain Newton step in place of the rounding up gives another quotient
// for one d in 2^23, the one just below a power of two.
//
// The rounding. What IEEE division makes exactly 0.25, 1.25, 2.5 or 5 goes down (to the even code), 0.75, 1.75 and 3.5
// go up. The second bit of the significand tells the two kinds apart, so where it is clear the quotient takes one step
// of its last place towards zero (an addition that rounds towards zero does that). From here on a code is how many
// boundaries the quotient reaches, and cutting it off to f16 does not change that, since boundaries are numbers of f16.
//
// The code. Times 2^-14 a number of e2m1 has its code in bits 9 to 11 of f16, subnormal ones too (ptx/e2m1.cuh), so
// half a step added to the bits, and they are cut off there. Shifted to the top of each half beside x's sign, nibbles
// are gathered from bytes.
#pragma once

#include "ptx/narrow.cuh"
#include "quantize/elements.cuh"

namespace tessera::quantize {

// 1 / d for quotient(), 2^-90 <= d <= 2^90.
__device__ __forceinline__ float reciprocal_up(float d) {
  const float r = ptx::rcp_approx(d);
  return __fmaf_ru(__fmaf_rn(-d, r, 1.0f), r, r);
}

// |q|, below every boundary that it should not reach.
__device__ __forceinline__ float below_boundary(float q) {
  // As a number 0x400000 is 2^-127: nothing beside the last place of any quotient that counts.
  return __fadd_rz(fabsf(q), -__uint_as_float(~__float_as_uint(q) & 0x400000u));
}

// |x / d| so, and a number of its sign. r = reciprocal_up(d).
__device__ __forceinline__ float quotient(float x, float d, float r, float& near) {
  near = __fmul_rn(x, r);
  return below_boundary(__fmaf_rn(__fmaf_rn(near, d, -x), -r, near));
}
__device__ __forceinline__ float quotient(float x, float d, float r) {
  float near;
  return quotient(x, d, r, near);
}

inline constexpr unsigned kSixes = 0x0e000e00u;  // two of f16, times 2^-14

// Quotients of f16, times 2^-14, to codes in the upper nibbles of both halves; signs are x's.
__device__ __forceinline__ unsigned code_nibbles(unsigned quotients, unsigned x) {
  constexpr unsigned kHalfStep = 0x01000100u, kSigns = 0x80008000u;
  return ptx::select_bits(kSigns, x, (quotients + kHalfStep) << 3);
}

// Eight quotients to a word.
__device__ __forceinline__ unsigned code_word(const unsigned (&quotients)[4], const unsigned (&signs)[4]) {
  unsigned nibbles[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) nibbles[i] = code_nibbles(quotients[i], signs[i]);
  // The upper bytes of halves, of elements 0 to 3 and 4 to 7; then those of even and of odd elements.
  const unsigned first = ptx::prmt(nibbles[0], nibbles[1], 0x7531u);
  const unsigned last = ptx::prmt(nibbles[2], nibbles[3], 0x7531u);
  const unsigned even = ptx::prmt(first, last, 0x6420u), odd = ptx::prmt(first, last, 0x7531u);
  return ((even >> 4) & 0x0f0f0f0fu) | (odd & 0xf0f0f0f0u);
}

// pairs: (x[2 i], x[2 i + 1]) of kDType, none NaN. can_saturate: some quotient may be above 6.5.
template <DType kDType>
__device__ __forceinline__ void encode_e2m1_quotients(const unsigned (&pairs)[8], float d, bool can_saturate,
                                                      unsigned (&words)[2]) {
  const float scaled = __fmul_rn(d, 0x1p14f);
  const float r = reciprocal_up(scaled);
  unsigned q[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float low, high;
    unpack_pair<kDType>(pairs[i], low, high);
    q[i] = ptx::cvt_rz_f16x2(quotient(low, scaled, r), quotient(high, scaled, r));
  }
  // Infinite ones, too: their remainder is NaN, which gives way to 6.
  if (can_saturate) {
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = ptx::min_abs_f16x2(kSixes, q[i]);
  }
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const unsigned of_word[4] = {q[4 * w], q[4 * w + 1], q[4 * w + 2], q[4 * w + 3]};
    const unsigned signs[4] = {pairs[4 * w], pairs[4 * w + 1], pairs[4 * w + 2], pairs[4 * w + 3]};
    words[w] = code_word(of_word, signs);
  }
}

// NaN if an element is.
template <DType kDType>
__device__ __forceinline__ float amax16_nan(const Source16<kDType>& x) {
  unsigned amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = ptx::max_abs_nan_x2<kDType>(amax, x.words[i]);
  float low, high;
  unpack_pair<kDType>(amax, low, high);
  return ptx::max_nan(low, high);
}

// NaN becomes infinity, which has the code that e2m1 has for NaN, +6, if quotients are held there.
template <DType kDType>
__device__ __forceinline__ void replace_nan(Source16<kDType>& x) {
  // With this added magnitudes above infinity's reach the sign's bit, which prmt spreads over both bytes of a half.
  constexpr unsigned kAboveInfinity = kDType == DType::bf16 ? 0x007f007fu : 0x03ff03ffu;
  constexpr unsigned kInfinity = kDType == DType::bf16 ? 0x7f807f80u : 0x7c007c00u;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned is_nan = ptx::prmt((x.words[i] & 0x7fff7fffu) + kAboveInfinity, 0, 0xbb99u);
    x.words[i] = (x.words[i] & ~is_nan) | (kInfinity & is_nan);
  }
}

}  // namespace tessera::quantize
