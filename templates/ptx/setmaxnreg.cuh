// Moving registers between the warpgroups of a CTA. Every warp of the warpgroup executes it; the kernel needs a
// register cap (launch bounds), or ptxas ignores it with a note.
#pragma once

namespace tessera::ptx {

// PTX ISA "setmaxnreg", PTX 8.0, sm_90a. Blocks until the CTA's pool has the registers.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// PTX ISA "setmaxnreg", PTX 8.0, sm_90a. Gives registers back to the CTA's pool.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tessera::ptx
