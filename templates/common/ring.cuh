// A ring of shared-memory slots: a row of full barriers, a row of empty ones behind it, and a position for every role
// that follows the ring.
#pragma once

#include "ptx/mbarrier.cuh"

namespace tessera::common {

// One thread: full and empty barriers in turn. `first`: the first full one.
template <int kSlots>
__device__ __forceinline__ void init_ring(unsigned first, int full_arrivals, int empty_arrivals) {
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    ptx::mbarrier_init(first + 8 * i, full_arrivals);
    ptx::mbarrier_init(first + 8 * (kSlots + i), empty_arrivals);
  }
}

// A slot's empty barrier, from its full one.
template <int kSlots>
__device__ __forceinline__ unsigned empty_behind(unsigned full) {
  return full + 8 * kSlots;
}

// Which slot, and which parity its barriers have this time round.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  unsigned parity = 0;  // of the phase that a consumer waits for; the producer waits for the other one

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
  // As often as there are steps: past a tile that others work on.
  __device__ __forceinline__ void advance(int steps) {
    const int reached = slot + steps;
    slot = reached % kSlots;
    parity ^= static_cast<unsigned>(reached / kSlots) & 1;
  }
};

}  // namespace tessera::common
