// rcp.
#pragma once

namespace tessera::ptx {

// PTX ISA "rcp", PTX 1.4, any target. 1 / x within a unit in the last place; 1 / infinity = 0. Not volatile: pure.
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tessera::ptx
