// Values of e3m2 and e2m3 from memory to pairs of f16. Four fill three bytes, which begin anywhere in a word: words are
// read whole, and shifted.
//
// Without an instruction: put where f16 has its sign and the lowest bits of its exponent and the highest of its
// mantissa, a value is the number times 2^-12 (e3m2) or 2^-14 (e2m3), subnormal ones included, so that one exact
// multiplication is all the arithmetic.
#pragma once

#include "ptx/global.cuh"
#include "ptx/narrow.cuh"
#include "ptx/six_bits.cuh"
#include "tessera/spec/block_scale.h"

namespace tessera::dequantize {

// kCount values from `element` on, a multiple of kCount, 4 or 8: 24 or 48 bits, the lowest first. Values are whole
// words: a block has six.
template <int kCount>
__device__ __forceinline__ void load_six_bits(const void* values, long long element, unsigned (&words)[2]) {
  static_assert(kCount == 4 || kCount == 8);
  const long long byte = element * 6 / 8;
  const char* const at = static_cast<const char*>(values) + (byte & ~3ll);
  const unsigned shift = static_cast<unsigned>(byte & 3) * 8;
  const unsigned low = ptx::ld_global_u32(at);
  const unsigned high = kCount == 8 || shift > 8 ? ptx::ld_global_u32(at + 4) : 0;
  words[0] = __funnelshift_r(low, high, shift);
  words[1] = high >> shift;
}

// Values 2 i and 2 i + 1 of those, each in the low six bits of a byte.
__device__ __forceinline__ unsigned six_bit_pair(const unsigned (&words)[2], int i) {
  const int bit = 12 * i;
  const unsigned both = bit < 32 ? __funnelshift_r(words[0], words[1], bit) : words[1] >> (bit - 32);
  return (both & 0x3fu) | (both << 2 & 0x3f00u);
}

template <ValueType kType, Conversion kConversion>
__device__ __forceinline__ unsigned decode_six_bit_pair(unsigned pair) {
  if constexpr (kConversion == Conversion::hardware) {
    return ptx::cvt_f16x2_six_bits_x2<kType>(pair);
  } else {
    constexpr bool kIsE3m2 = kType == ValueType::e3m2;
    constexpr unsigned kFactor = kIsE3m2 ? 0x6c006c00u : 0x74007400u;  // 2^12, 2^14
    const unsigned halves = (pair & 0x3fu) | (pair << 8 & 0x3f0000u);
    const unsigned sizes = (halves & 0x1f001fu) << (kIsE3m2 ? 8 : 7);
    return ptx::mul_f16x2(sizes | (halves & 0x200020u) << 10, kFactor);
  }
}

}  // namespace tessera::dequantize
