// Sixteen fp32 numbers to e3m2 or e2m3, packed: 12 bytes, value i in bits 6 i to 6 i + 5.
//
// Without an instruction for them: e5m2 and e4m3 have as many bits of mantissa, and of their exponents the lowest are
// e3m2's and e2m3's once the number is multiplied by 2^-12 or 2^-6: then the least normal numbers of both fall
// together, and so do the subnormal ones below. What is above the largest value is brought there first, NaN too.
#pragma once

#include "ptx/narrow.cuh"
#include "ptx/six_bits.cuh"
#include "tessera/spec/block_scale.h"

namespace tessera::quantize {

// Four codes, a byte each, the first in the lowest one.
template <ValueType kType, Conversion kConversion>
__device__ __forceinline__ unsigned six_bit_codes(const float* q) {
  if constexpr (kConversion == Conversion::hardware) {
    return ptx::cvt_six_bits_x2<kType>(q[0], q[1]) | ptx::cvt_six_bits_x2<kType>(q[2], q[3]) << 16;
  } else {
    constexpr bool kIsE3m2 = kType == ValueType::e3m2;
    constexpr float kMost = kIsE3m2 ? 28.0f : 7.5f, kFactor = kIsE3m2 ? 0x1p-12f : 0x1p-6f;
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __fmul_rn(fmaxf(fminf(q[i], kMost), -kMost), kFactor);
    const unsigned codes = kIsE3m2 ? ptx::cvt_e5m2x2(x[0], x[1]) | ptx::cvt_e5m2x2(x[2], x[3]) << 16
                                   : ptx::cvt_e4m3x4(x[0], x[1], x[2], x[3]);
    return (codes & 0x1f1f1f1fu) | (codes >> 2 & 0x20202020u);
  }
}

// The low six bits of four bytes to the low 24 bits.
__device__ __forceinline__ unsigned join_six_bits(unsigned codes) {
  return (codes & 0x3fu) | (codes >> 2 & 0xfc0u) | (codes >> 4 & 0x3f000u) | (codes >> 6 & 0xfc0000u);
}

template <ValueType kType, Conversion kConversion>
__device__ __forceinline__ void encode_six_bits(const float (&q)[16], unsigned (&words)[3]) {
  unsigned of_four[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) of_four[i] = join_six_bits(six_bit_codes<kType, kConversion>(q + 4 * i));
  words[0] = of_four[0] | of_four[1] << 24;
  words[1] = of_four[1] >> 8 | of_four[2] << 16;
  words[2] = of_four[2] >> 16 | of_four[3] << 8;
}

}  // namespace tessera::quantize
