// Arithmetic that C++ has no name for.
#pragma once

#include "tessera/spec/types.h"

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

// PTX ISA "cvt", PTX 8.1, sm_89. Two fp32 to two 8-bit floats, nearest even; what is too large becomes the largest
// number. Not volatile: pure.
template <DType kDType>
__device__ __forceinline__ unsigned short cvt_pack_8(float low, float high) {
  unsigned short packed;
  if constexpr (kDType == DType::e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

// PTX ISA "cvt", PTX 6.0, sm_53 (f16; bf16 is the upper half of fp32). The bits of a 16-bit float to fp32. Not
// volatile: pure.
template <DType kDType>
__device__ __forceinline__ float cvt_f32(unsigned short bits) {
  if constexpr (kDType == DType::bf16) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
}

// PTX ISA "tanh", PTX 7.0, sm_75. Within 8e-6 (measured). Not volatile: pure.
__device__ __forceinline__ float tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA "fma", PTX 2.0, sm_20. sum += a * b; the compiler leaves it where it stands among others.
__device__ __forceinline__ void fma_in_order(float& sum, float a, float b) {
  asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum) : "f"(a), "f"(b));
}
// PTX ISA "mul", PTX 1.0, sm_20: product = a * b, likewise.
__device__ __forceinline__ void mul_in_order(float& product, float a, float b) {
  asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
}

}  // namespace tessera::ptx
