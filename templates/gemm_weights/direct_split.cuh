// Adding up the parts of K with mma.f16: those of the groups of a CTA, times those of the CTAs of a cluster. Each of a
// block's four 16 columns has an owner among the warps that share the block; the others send it their sums, and it adds
// all up in the order of the parts. So the result does not depend on who was first.
//
// Sums lie as the lanes hold them: those of an instruction are 16 bytes of a lane, those of a warp side by side. They
// are sent by st.async, which counts at the owner's barrier: no fence that waits for all that is in flight; within a
// CTA by ordinary stores. Only for a further tile does the owner say that it has read them.
#pragma once

#include "common/ring.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/shared.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// Of a warp: of 16 columns each, by eight rows of D.
template <Config C>
struct DirectSums {
  float of[kDirectParts][C.tile_m / 8][4];
};

template <Config C>
struct DirectSplit {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kGroups = k_groups(C);
  static constexpr int kParts = parts(C);
  static constexpr int kOctets = C.tile_m / 8;
  static constexpr int kOctetBytes = 32 * 16;

  const unsigned smem;
  const int block;
  const int group;
  const int lane;
  const int rank;       // of the CTA
  unsigned parity = 0;  // of tiles

  __device__ __forceinline__ int part() const { return rank * kGroups + group; }
  __device__ __forceinline__ bool is_owner(int i) const { return direct_owner(C, i) == part(); }
  // Where the sums of a part lie at the owner of the 16 columns i, which has its own in registers.
  __device__ __forceinline__ unsigned place(int i, int of_part) const {
    const int others = of_part - (of_part > direct_owner(C, i) ? 1 : 0);
    const int row = (block * direct_owned(C) + direct_place(C, i)) * (kParts - 1) + others;
    return smem + smem_layout(C).parts.offset + row * kOctets * kOctetBytes + lane * 16;
  }
  __device__ __forceinline__ unsigned ready(int of_group) const {
    return common::barrier_at<kBarriers.ready>(smem, of_group * blocks_of_tile(C) + block);
  }
  __device__ __forceinline__ unsigned fetched() const { return common::barrier_at<kBarriers.fetched>(smem, block); }

  __device__ __forceinline__ void send(int i, const float (&sums)[kOctets][4]) const {
    const int owner = direct_owner(C, i), to_rank = owner / kGroups;
    if constexpr (C.split_k == 1) {
#pragma unroll
      for (int j = 0; j < kOctets; ++j)
        ptx::st_shared_v4_f32(place(i, part()) + j * kOctetBytes, sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(ready(owner));
      return;
    }
    const unsigned to = ptx::mapa(place(i, part()), to_rank), at = ptx::mapa(ready(owner % kGroups), to_rank);
#pragma unroll
    for (int j = 0; j < kOctets; ++j)
      ptx::st_async_v4_f32(to + j * kOctetBytes, at, sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
  }
  // A few parts at a time: the loads of all at once would ask for more registers than there are.
  __device__ __forceinline__ void add_up(int i, float (&sums)[kOctets][4]) const {
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
      float all[4] = {};
#pragma unroll 4
      for (int other = 0; other < kParts; ++other) {
        float of_part[4] = {sums[j][0], sums[j][1], sums[j][2], sums[j][3]};
        if (other != part()) ptx::ld_shared_v4_f32(place(i, other) + j * kOctetBytes, of_part);
#pragma unroll
        for (int v = 0; v < 4; ++v) all[v] += of_part[v];
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[j][v] = all[v];
    }
  }

  __device__ __forceinline__ int owned() const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i) count += is_owner(i) ? 1 : 0;
    return count;
  }
  __device__ __forceinline__ void send_all(const DirectSums<C>& sums) const {
    const int count = owned();
    if (C.split_k > 1 && count > 0 && lane == 0)
      ptx::mbarrier_arrive_expect_tx(ready(group), count * (kParts - 1) * kOctets * kOctetBytes);
    ptx::mbarrier_wait_parity_acquire_cluster(fetched(), parity ^ 1);  // those of the tile before were read
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i)
      if (!is_owner(i)) send(i, sums.of[i]);
  }
  // Afterwards an owner has the sums of all parts.
  __device__ __forceinline__ void receive(DirectSums<C>& sums) const {
    if (owned() > 0) {
      ptx::mbarrier_wait_parity_acquire_cluster(ready(group), parity);
#pragma unroll
      for (int i = 0; i < kDirectParts; ++i)
        if (is_owner(i)) add_up(i, sums.of[i]);
    }
  }
  // An owner has read what it was sent.
  __device__ __forceinline__ void release(bool has_next) {
    parity ^= 1;
    bool owns = false;
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i) owns = owns || is_owner(i);
    if (!has_next || !owns) return;
    __syncwarp();
    if constexpr (C.split_k == 1) {
      if (lane == 0) ptx::mbarrier_arrive(fetched());
    } else {
      if (lane < C.split_k) ptx::mbarrier_arrive_release_cluster(ptx::mapa(fetched(), lane));
    }
  }
};

}  // namespace tessera::gemm_weights
