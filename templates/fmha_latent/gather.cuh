// Keys of two pools: each query lists rows of one, and has a window of the other, or a list of its rows too. The four
// warps of the producer warpgroup have 16 keys of each block. Lanes 0 to 15 know a key's row each; then eight lanes
// copy a key, 16 bytes of a panel each, to where wgmma's swizzle has them, with zeros in place of a key that is not
// there.
//
// Copies write through the generic proxy and arrive at the barrier of their group of panels by themselves: consumers,
// who wait for it, fence. A list's entries are loaded two blocks ahead, and looked at when they are used: a look at one
// waits for it. To bring rows to the L2 before their slot is free made it slower (H200, 128 heads: decode of 128
// sequences 299 us in place of 280, prefill 4,206 in place of 3,813).
#pragma once

#include "fmha_latent/deal.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/elect.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// Where the keys of a query lie.
template <Config C>
struct ListedKeys {
  const Params& p;
  const RowPlace place;
  const int* const list;
  const int* const second;  // list, of the window's rows; null: they are its first ones
  const int listed;
  const int end;

  __device__ __forceinline__ ListedKeys(const Params& params, int sequence)
      : p(params),
        place(place_of<C>(params, sequence, 0)),
        list(params.indices + static_cast<long long>(sequence) * params.topk),
        second(params.swa_indices == nullptr
                   ? nullptr
                   : params.swa_indices + static_cast<long long>(sequence) * params.seqlen_swa),
        listed(attention::list_length(params, sequence)),
        end(keys_of<C>(params, sequence)) {}

  // What the list says of a key.
  __device__ __forceinline__ unsigned entry_of(int key) const {
    if (key < listed) return ptx::ld_global_u32_stream(list + key);
    if (second != nullptr && key < end) return ptx::ld_global_u32_stream(second + (key - listed));
    return static_cast<unsigned>(key - listed);
  }
  // The key's row of its pool, below 0: it is not there.
  __device__ __forceinline__ int row_of(int key, unsigned entry) const {
    const unsigned rows = static_cast<unsigned>(key < listed ? p.seqlen_k : p.swa_rows);
    return key < end && entry < rows ? static_cast<int>(entry) : -1;
  }
  // Where it begins.
  __device__ __forceinline__ const char* begin_of(int key, int row) const {
    if (row < 0) return static_cast<const char*>(p.k_keys);
    if (key < listed) return static_cast<const char*>(p.k_keys) + 2 * (row * p.k_stride_seqlen);
    return static_cast<const char*>(p.swa_k) + 2 * (place.batch * p.swa_k_stride_batch + row * p.swa_k_stride_seqlen);
  }
};

// Of the four warps that gather; the warpgroup may be any.
__device__ __forceinline__ int gather_warp() { return static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32; }

inline constexpr int kLanesOfKey = kSpanBytes / 16;
inline constexpr int kKeysAtOnce = 32 / kLanesOfKey;
inline constexpr int kStepsOfWarp = kKeysOfWarp / kKeysAtOnce;

// The warp's keys of a block, as a lane copies them.
struct GatheredKeys {
  unsigned present;                // a bit for each: else it is zeros
  const char* from[kStepsOfWarp];  // this lane's 16 bytes of the first panel

  __device__ __forceinline__ void copy(unsigned slot, int first_panel, int count) const {
    const int warp = gather_warp(), lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned to = swizzle_address(
        Swizzle::b128,
        slot + static_cast<unsigned>((warp * kKeysOfWarp + lane / kLanesOfKey) * kSpanBytes + lane % kLanesOfKey * 16));
#pragma unroll 1
    for (int panel = first_panel; panel < first_panel + count; ++panel) {
      // Every second step has the other half of the rows of a swizzle's pattern.
#pragma unroll
      for (int i = 0; i < kStepsOfWarp; ++i)
        ptx::cp_async_16((to ^ (i % 2 * kKeysAtOnce * 16)) + panel * kPanelBytes + i * kKeysAtOnce * kSpanBytes,
                         from[i] + panel * kSpanBytes, present >> (i * kKeysAtOnce + lane / kLanesOfKey) & 1 ? 16 : 0);
    }
  }
};

template <Config C>
__device__ __forceinline__ void gather_keys(const Params& p, unsigned smem, Walk<C>& walk) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kOfRotation = panels(C) - 2 * kPanelsOfHalf;  // panels that only S needs
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * kKeysOfWarp + lane % kKeysOfWarp;
  unsigned parity = 1, q_parity = 1;
  Part part;
#pragma unroll 1
  while (walk.next(part)) {
    if (warp == kWarpOfQ) {
      if (ptx::elect_sync()) load_rows<C>(p, smem, part.sequence, walk.tile() * kRows, q_parity);
      __syncwarp();
      q_parity ^= 1;
    }
    const ListedKeys<C> keys(p, part.sequence);
    const int end = 2 * part.end;
    unsigned entry = keys.entry_of(2 * part.begin * kBlockKeys + own);
    unsigned next = keys.entry_of((2 * part.begin + 1) * kBlockKeys + own);
#pragma unroll 1
    for (int block = 2 * part.begin; block < end; ++block) {
      const int index = block % 2;
      const unsigned slot = smem + kLayout.k.offset + index * kSlotBytes;
      const BarrierRow full = row_at<kBarriers.k_full>(smem, index * kGroups);
      const BarrierRow empty = row_at<kBarriers.k_empty>(smem, index * kConsumers);
      const int row = keys.row_of(block * kBlockKeys + own, entry);
      const unsigned present = __ballot_sync(0xffffffff, row >= 0) & ((1u << kKeysOfWarp) - 1);
      GatheredKeys gathered{present, {}};
#pragma unroll
      for (int i = 0; i < kStepsOfWarp; ++i) {
        const int of_warp = i * kKeysAtOnce + lane / kLanesOfKey;
        const int its_row = __shfl_sync(0xffffffff, row, of_warp);
        const int key = block * kBlockKeys + warp * kKeysOfWarp + of_warp;
        gathered.from[i] = keys.begin_of(key, its_row) + lane % kLanesOfKey * 16;
      }
      entry = next;
      next = keys.entry_of((block + 2) * kBlockKeys + own);
      wait_of_warp(empty[0], parity);
      gathered.copy(slot, 0, kPanelsOfHalf);
      if (lane == 0) {
        ptx::st_shared_u32(smem + kLayout.present.offset + (index * kGatherWarps + warp) * 4, present);
        ptx::mbarrier_arrive(full[0]);
      }
      ptx::cp_async_mbarrier_arrive_noinc(full[0]);
      if (kOfRotation > 0 && index == 1) {
        gathered.copy(slot, kPanelOfP, kOfRotation);
        ptx::cp_async_mbarrier_arrive_noinc(full[2]);
      }
      wait_of_warp(empty[1], parity);
      gathered.copy(slot, kPanelsOfHalf, kPanelsOfHalf);
      ptx::cp_async_mbarrier_arrive_noinc(full[1]);
      if (kOfRotation > 0 && index == 0) {
        gathered.copy(slot, kPanelOfP, kOfRotation);
        ptx::cp_async_mbarrier_arrive_noinc(full[2]);
      }
      parity ^= static_cast<unsigned>(index);
    }
  }
}

// The producer warpgroup.
template <Config C>
__device__ __forceinline__ void gather(const Params& p, unsigned smem) {
  Walk<C> walk(p);
  gather_keys<C>(p, smem, walk);
}

}  // namespace tessera::fmha_latent
