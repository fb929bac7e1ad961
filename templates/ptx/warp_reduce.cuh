// Reductions over the lanes of a warp in one instruction.
#pragma once

namespace tessera::ptx {

// PTX ISA "redux.sync", PTX 7.0, sm_80. All 32 lanes. Volatile: lanes meet.
__device__ __forceinline__ unsigned redux_max(unsigned x) {
  unsigned most;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(x));
  return most;
}
// PTX ISA "redux.sync", PTX 7.0, sm_80. All 32 lanes. Volatile: lanes meet.
__device__ __forceinline__ unsigned redux_min(unsigned x) {
  unsigned least;
  asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(least) : "r"(x));
  return least;
}
// PTX ISA "redux.sync", PTX 7.0, sm_80. All 32 lanes. Volatile: lanes meet.
__device__ __forceinline__ unsigned redux_add(unsigned x) {
  unsigned sum;
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(x));
  return sum;
}

}  // namespace tessera::ptx
