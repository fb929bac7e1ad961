// wgmma: a warpgroup multiplies 64 x K by K x N into registers, asynchronously; K is 16 for 16-bit elements, 32 for
// 8-bit ones.
//
// Order of things: fence (registers that the instructions read or write were touched), the instructions, commit, wait.
// Until the wait, neither the accumulators nor the registers of A may be touched. The compiler does not know that: it
// sees an assembly statement whose outputs are ready at once. hold() after the wait ties the accumulators to that
// place, and before the fence keeps what was written to them above it.
//
// Wgmma<...>::mma issues kSteps steps along K; begin() is mma() where D is only written; hold() is an empty statement
// that names all accumulators. With up to 128 named registers they are specialisations in a generated header,
// wgmma_shapes.cuh. The steps are one statement, because the compiler takes the accumulators apart and puts them
// together again at each: statements cost compile time, instructions do not.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::ptx {

// PTX ISA "wgmma.fence", PTX 8.0, sm_90a.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// PTX ISA "wgmma.commit_group", PTX 8.0, sm_90a.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// PTX ISA "wgmma.wait_group", PTX 8.0, sm_90a. At most kPending of the newest groups are still in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <int kN, DType kDType, bool kAInRegisters, bool kBIsMnMajor, int kSteps, bool kAIsMnMajor = false,
          DType kBDType = kDType>
struct Wgmma;

}  // namespace tessera::ptx
