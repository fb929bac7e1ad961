// A position in the ring of shared-memory slots: which slot, and which parity its barriers have this time round.
#pragma once

namespace tessera::gemm {

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

}  // namespace tessera::gemm
