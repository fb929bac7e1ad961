// Named barriers of a CTA: identifiers 0 to 15, 0 is __syncthreads(). Thread counts are multiples of 32.
#pragma once

namespace tessera::ptx {

// PTX ISA "barrier.sync", PTX 6.0, sm_70 (a register as identifier: sm_20). Every thread of the warp takes part.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// PTX ISA "barrier.arrive", PTX 6.0, sm_70. Counts this warp without waiting.
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace tessera::ptx
