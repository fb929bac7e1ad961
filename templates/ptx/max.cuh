// Maxima that C++ has no name for: one that keeps a NaN, where fmaxf() returns the other operand, and one of three.
#pragma once

namespace tessera::ptx {

// PTX ISA "max", .NaN: PTX 7.0, sm_80. Not volatile: pure.
__device__ __forceinline__ float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// PTX ISA "max", three operands: PTX 8.8, sm_100. A NaN gives way, as in fmaxf(). Not volatile: pure.
__device__ __forceinline__ float max3(float x, float y, float z) {
  float w;
  asm("max.f32 %0, %1, %2, %3;" : "=f"(w) : "f"(x), "f"(y), "f"(z));
  return w;
}

}  // namespace tessera::ptx
