// Maximum that keeps a NaN: fmaxf() returns the other operand.
#pragma once

namespace tessera::ptx {

// PTX ISA "max", .NaN: PTX 7.0, sm_80. Not volatile: pure.
__device__ __forceinline__ float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

}  // namespace tessera::ptx
