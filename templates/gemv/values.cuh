// Values and scales as numbers that are multiplied.
#pragma once

#include "ptx/e2m1.cuh"
#include "ptx/narrow.cuh"
#include "spec/gemv.h"

namespace tessera::gemv {

// Twice the magnitudes of e2m1, as bytes for prmt: codes 0 to 3, 4 to 7. All are below 128, so that prmt's copying of
// signs, which it does where a code's own sign bit is set, gives 0.
inline constexpr unsigned kDoubledLow = 0x03020100u;
inline constexpr unsigned kDoubledHigh = 0x0c080604u;

// Four values of the selector's low 16 bits: the positive ones; those of the opposite sign are 0.
__device__ __forceinline__ unsigned positive_part(unsigned selector) {
  return ptx::prmt(kDoubledLow, kDoubledHigh, selector);
}

// Signed bytes from four codes: with 128 added no byte borrows from the next, and the last step takes it away again.
__device__ __forceinline__ unsigned signed_bytes(unsigned selector) {
  return (positive_part(selector) + 0x80808080u - positive_part(selector ^ 0x8888u)) ^ 0x80808080u;
}

// The values of a word, eight or four, as pairs of f16, exactly.
template <BlockFormat kFormat, Conversion kConversion, int kPairs>
__device__ __forceinline__ void decode_word(unsigned word, unsigned (&pairs)[kPairs]) {
  static_assert(kPairs == 16 / value_bits(kFormat));
  if constexpr (value_type(kFormat) == ValueType::e2m1) {
    ptx::decode_e2m1x8<kConversion>(word, pairs);
  } else if constexpr (value_type(kFormat) == ValueType::e4m3) {
    pairs[0] = ptx::cvt_f16x2_e4m3x2(word & 0xffffu);
    pairs[1] = ptx::cvt_f16x2_e4m3x2(word >> 16);
  } else {
    pairs[0] = ptx::cvt_f16x2_e5m2x2(word & 0xffffu);
    pairs[1] = ptx::cvt_f16x2_e5m2x2(word >> 16);
  }
}

// The scale of a code in the low byte; of ue8m0 all lower bits are 0, those above are taken away.
template <BlockFormat kFormat>
__device__ __forceinline__ float scale_number(unsigned codes) {
  if constexpr (scale_type(kFormat) == ScaleType::ue4m3) {
    return ptx::f32_of_low_f16(ptx::cvt_f16x2_e4m3x2(codes & 0x7f7fu));
  } else {
    const unsigned code = codes & 0xffu;  // 2^-127 is subnormal
    return __uint_as_float(code == 0 ? 0x400000u : code == 0xff ? 0x7fffffffu : code << 23);
  }
}

}  // namespace tessera::gemv
