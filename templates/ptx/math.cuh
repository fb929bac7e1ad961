// Arithmetic that C++ has no name for.
#pragma once

#include "spec/types.h"

namespace tessera::ptx {

__device__ __forceinline__ float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

// PTX ISA "ex2", PTX 1.4, any target. 2^x within two units in the last place; 2^-inf = 0. Not volatile: pure.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "lg2", PTX 1.4, any target. lg2(0) = -inf. Not volatile: pure.
__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "cvt", PTX 7.0, sm_80. Two fp32 to one register of 16-bit floats, nearest even. Not volatile: pure.
template <DType kDType>
__device__ __forceinline__ unsigned cvt_pack(float low, float high) {
  unsigned packed;
  if constexpr (kDType == DType::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

}  // namespace tessera::ptx
