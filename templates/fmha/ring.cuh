// A position in a ring of shared-memory slots: which slot, and which parity its barriers have this time round. Both in
// one register, because consumers have none to spare.
#pragma once

namespace tessera::fmha {

template <int kSlots>
struct RingPosition {
  int state = 0;  // 2 * slot + parity

  __device__ __forceinline__ int slot() const { return kSlots == 1 ? 0 : state >> 1; }
  // Of the phase that a consumer waits for; a producer waits for the other one.
  __device__ __forceinline__ unsigned parity() const { return static_cast<unsigned>(state) & 1; }

  __device__ __forceinline__ void advance() {
    const int next = state + 2;
    state = next >= 2 * kSlots ? (next - 2 * kSlots) ^ 1 : next;
  }
  // By so many, at least one.
  __device__ __forceinline__ void advance(int by) {
    const int place = (state >> 1) + (state & 1) * kSlots + by;  // among the slots of both parities
    const int in_two = static_cast<int>(static_cast<unsigned>(place) % (2 * kSlots));
    state = in_two >= kSlots ? 2 * (in_two - kSlots) + 1 : 2 * in_two;
  }
  // The position that advance() came from.
  __device__ __forceinline__ RingPosition previous() const {
    const int before = state - 2;
    return {before < 0 ? (before + 2 * kSlots) ^ 1 : before};
  }
};

// Of a ring that advances once for each tile: whether an odd number of tiles came before.
template <int kSlots>
__device__ __forceinline__ unsigned tile_parity(const RingPosition<kSlots>& position) {
  static_assert(kSlots == 1 || kSlots == 2);
  return kSlots == 1 ? position.parity() : static_cast<unsigned>(position.slot());
}

}  // namespace tessera::fmha
