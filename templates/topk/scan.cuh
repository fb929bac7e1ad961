// Shared memory of a CTA, and sums over its threads in their order.
#pragma once

#include "ptx/shared_words.cuh"
#include "ptx/warp_reduce.cuh"
#include "topk/row.cuh"

namespace tessera::topk {

// Addresses in the shared window.
struct Memory {
  unsigned keys;       // of keys, or of the keys of pairs
  unsigned columns;    // of the pairs' j
  unsigned histogram;  // of the digit at hand
  unsigned sums;
  unsigned sorted;
  unsigned counts;
};

inline constexpr int kFoundAt = 4 * 2 * kWarp;  // of a digit: behind the counts of warps
inline constexpr int kLimitAt = kFoundAt + 16;  // keys of this CTA above the limit, and at it

template <Config C>
__device__ __forceinline__ Memory memory_of_cta() {
  extern __shared__ __align__(16) unsigned char memory_of_topk[];
  constexpr SmemLayout kLayout = smem_layout(C);
  const unsigned base = ptx::shared_address(memory_of_topk);
  return {base + kLayout.keys,      base + kLayout.keys + 4 * pairs(C),
          base + kLayout.histogram, base + kLayout.sums,
          base + kLayout.sorted,    base + kLayout.counts};
}

__device__ __forceinline__ unsigned sum_of_lanes_before(unsigned mine) {
  unsigned sum = mine;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const unsigned other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane_of_thread() >= distance) sum += other;
  }
  return sum - mine;
}

struct Sums {
  unsigned before, all;
};

// Of warps' sums those of the warps before, and of all. Ends no use of the memory at `sums`: a barrier does.
template <Config C>
__device__ __forceinline__ Sums sums_of_warps(unsigned sums, unsigned of_warp) {
  if (lane_of_thread() == 0) ptx::st_shared_u32(sums + 4 * warp_of_cta(), of_warp);
  __syncthreads();
  const unsigned other = lane_of_thread() < warps(C) ? ptx::ld_shared_u32(sums + 4 * lane_of_thread()) : 0;
  return {ptx::redux_add(lane_of_thread() < warp_of_cta() ? other : 0), ptx::redux_add(other)};
}

// Of all threads' numbers those of the threads before, and of all.
template <Config C>
__device__ __forceinline__ Sums sums_of_threads(unsigned sums, unsigned mine) {
  const unsigned before = sum_of_lanes_before(mine);
  const Sums of_warps = sums_of_warps<C>(sums, __shfl_sync(kAllLanes, before + mine, kWarp - 1));
  return {of_warps.before + before, of_warps.all};
}

// Keys by place: those of [first, end) are there.
struct Places {
  int first, end;
  __device__ __forceinline__ int count() const { return end - first; }
};

inline constexpr int kPlaces = 4;  // of a thread, side by side, in a round over all of them
// Those from `at` on, a multiple of four.
__device__ __forceinline__ unsigned has_places(const Places& places, int at) {
  unsigned mask = 0;
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) mask |= at + i >= places.first && at + i < places.end ? 1u << i : 0;
  return mask;
}
__device__ __forceinline__ void load_places(unsigned from, unsigned mask, int at, unsigned (&words)[kPlaces]) {
  if (mask == 15u) {
    const ptx::Words4 v = ptx::ld_shared_v4(from + 4 * at);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) words[i] = (mask >> i & 1) != 0 ? ptx::ld_shared_u32(from + 4 * (at + i)) : 0;
  }
}

}  // namespace tessera::topk
