// Adding up the parts of K of teams: those of the groups of a CTA, times those of the CTAs of a cluster. A warp of each
// part has the sums of the same 16 columns; one of them is their owner, the others send it theirs, and it adds all up
// in the order of the parts. So the result does not depend on who was first. How they lie and leave: direct_split.cuh.
#pragma once

#include "common/ring.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/shared.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

template <Config C>
struct TeamSplit {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kGroups = k_groups(C);
  static constexpr int kParts = parts(C);
  static constexpr int kBlocks = blocks(C);
  static constexpr int kOctets = C.tile_m / 8;
  static constexpr int kOctetBytes = 32 * 16;
  using Sums = float[kBlocks][kOctets][4];

  const unsigned smem;
  const int first_block;
  const int warp;  // of the team: which 16 columns of a block
  const int group;
  const int lane;
  const int rank;       // of the CTA
  unsigned parity = 0;  // of tiles

  __device__ __forceinline__ int part() const { return rank * kGroups + group; }
  __device__ __forceinline__ int owner() const {
    int of = 0;
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i) of = warp == i ? direct_owner(C, i) : of;
    return of;
  }
  __device__ __forceinline__ bool is_owner() const { return owner() == part(); }
  __device__ __forceinline__ int place_of_columns() const {
    int of = 0;
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i) of = warp == i ? direct_place(C, i) : of;
    return of;
  }
  // Where the sums of a part lie at the owner, which has its own in registers.
  __device__ __forceinline__ unsigned place(int i, int of_part) const {
    const int others = of_part - (of_part > owner() ? 1 : 0);
    const int row = ((first_block + i) * direct_owned(C) + place_of_columns()) * (kParts - 1) + others;
    return smem + smem_layout(C).parts.offset + row * kOctets * kOctetBytes + lane * 16;
  }
  // Of a team's blocks, the first one's barriers serve all.
  __device__ __forceinline__ unsigned ready() const {
    return common::barrier_at<kBarriers.ready>(smem, first_block * kDirectParts + warp);
  }
  __device__ __forceinline__ unsigned fetched() const {
    return common::barrier_at<kBarriers.fetched>(smem, first_block * kDirectParts + warp);
  }

  __device__ __forceinline__ void send_all(const Sums& sums) const {
    constexpr int kBytes = kBlocks * (kParts - 1) * kOctets * kOctetBytes;
    if (is_owner()) {
      if (C.split_k > 1 && lane == 0) ptx::mbarrier_arrive_expect_tx(ready(), kBytes);
      return;
    }
    ptx::mbarrier_wait_parity_acquire_cluster(fetched(), parity ^ 1);  // those of the tile before were read
    const int to_rank = owner() / kGroups;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < kOctets; ++j) {
        const unsigned to = place(i, part()) + j * kOctetBytes;
        if constexpr (C.split_k == 1) {
          ptx::st_shared_v4_f32(to, sums[i][j][0], sums[i][j][1], sums[i][j][2], sums[i][j][3]);
        } else {
          ptx::st_async_v4_f32(ptx::mapa(to, to_rank), ptx::mapa(ready(), to_rank), sums[i][j][0], sums[i][j][1],
                               sums[i][j][2], sums[i][j][3]);
        }
      }
    }
    if constexpr (C.split_k == 1) {
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(ready());
    }
  }
  // Afterwards the owner has the sums of all parts.
  __device__ __forceinline__ void receive(Sums& sums) const {
    if (!is_owner()) return;
    ptx::mbarrier_wait_parity_acquire_cluster(ready(), parity);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < kOctets; ++j) {
        float all[4] = {};
#pragma unroll 4
        for (int other = 0; other < kParts; ++other) {
          float of_part[4] = {sums[i][j][0], sums[i][j][1], sums[i][j][2], sums[i][j][3]};
          if (other != part()) ptx::ld_shared_v4_f32(place(i, other) + j * kOctetBytes, of_part);
#pragma unroll
          for (int v = 0; v < 4; ++v) all[v] += of_part[v];
        }
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[i][j][v] = all[v];
      }
    }
  }
  // The owner has read what it was sent.
  __device__ __forceinline__ void release(bool has_next) {
    parity ^= 1;
    if (!has_next || !is_owner()) return;
    __syncwarp();
    if constexpr (C.split_k == 1) {
      if (lane == 0) ptx::mbarrier_arrive(fetched());
    } else {
      if (lane < C.split_k) ptx::mbarrier_arrive_release_cluster(ptx::mapa(fetched(), lane));
    }
  }
};

}  // namespace tessera::gemm_weights
