// A position in a ring of slots: which slot, and which parity its barriers have this time round.
#pragma once

namespace tessera::gemm_tcgen05 {

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
};

}  // namespace tessera::gemm_tcgen05
