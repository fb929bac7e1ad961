// One lane of a warp, chosen without a comparison that the compiler must prove uniform.
#pragma once

namespace tessera::ptx {

// PTX ISA "elect.sync", PTX 8.0, sm_90. True in exactly one lane of the full, converged warp.
__device__ __forceinline__ bool elect_sync() {
  unsigned elected;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(elected));
  return elected != 0;
}

}  // namespace tessera::ptx
