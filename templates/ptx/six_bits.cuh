// Conversions of e3m2 and e2m3, two values in the low six bits of a byte each. Of a pair the first element is the low
// one: PTX names the high one first.
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera::ptx {

// PTX ISA "cvt", PTX 8.6, sm_100a, sm_120a and their families. Nearest even, saturating; NaN is the largest value. Not
// volatile: pure, as are all below.
template <ValueType kType>
requires(kType == ValueType::e3m2) __device__ __forceinline__ unsigned cvt_six_bits_x2(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e3m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
template <ValueType kType>
requires(kType == ValueType::e2m3) __device__ __forceinline__ unsigned cvt_six_bits_x2(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e2m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// PTX ISA "cvt", PTX 8.6, sm_100a, sm_120a and their families. Exact.
template <ValueType kType>
requires(kType == ValueType::e3m2) __device__ __forceinline__ unsigned cvt_f16x2_six_bits_x2(unsigned pair) {
  unsigned halves;
  asm("cvt.rn.f16x2.e3m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(pair)));
  return halves;
}
template <ValueType kType>
requires(kType == ValueType::e2m3) __device__ __forceinline__ unsigned cvt_f16x2_six_bits_x2(unsigned pair) {
  unsigned halves;
  asm("cvt.rn.f16x2.e2m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(pair)));
  return halves;
}

}  // namespace tessera::ptx
