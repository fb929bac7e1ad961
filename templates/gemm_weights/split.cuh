// Adding up the parts of K, of CTAs and of warpgroups: each leaves its sums in its CTA's shared memory, and for each
// block of rows one warpgroup fetches them from all, in the order of the parts. So the result does not depend on who
// was first.
//
// Sums lie as the threads hold them: four values of a thread are 16 bytes, those of a warpgroup's threads side by side.
#pragma once

#include "gemm/matmul.cuh"
#include "gemm_weights/schedule.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/shared.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

template <Config C>
struct Parts {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kValues = C.tile_m / 2;
  static constexpr int kGroups = k_groups(C);
  static constexpr int kParts = parts(C);
  static constexpr int kPartBytes = kValues / 4 * kWarpgroupThreads * 16;

  const unsigned smem;
  const int block;      // of the tile
  const int group;      // of the warpgroups that share it
  const int rank;       // of the CTA
  unsigned parity = 0;  // of tiles

  __device__ __forceinline__ bool is_owner() const { return group == 0 && block % C.split_k == rank; }
  __device__ __forceinline__ unsigned part_of(int of_group) const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    return smem + smem_layout(C).parts.offset + (of_group * blocks_of_tile(C) + block) * kPartBytes + thread * 16;
  }
  __device__ __forceinline__ unsigned ready() const { return common::barrier_at<kBarriers.ready>(smem, block); }
  __device__ __forceinline__ unsigned fetched() const { return common::barrier_at<kBarriers.fetched>(smem, block); }

  // Leaves the sums where the owner finds them.
  __device__ __forceinline__ void share(const float (&sums)[kValues]) {
    const unsigned to = part_of(group);
    ptx::mbarrier_wait_parity_acquire_cluster(fetched(), parity ^ 1);  // those of the tile before were read
#pragma unroll
    for (int g = 0; g < kValues / 4; ++g)
      ptx::st_shared_v4_f32(to + g * kWarpgroupThreads * 16, sums[4 * g], sums[4 * g + 1], sums[4 * g + 2],
                            sums[4 * g + 3]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      if constexpr (C.split_k > 1) {
        ptx::mbarrier_arrive_release_cluster(ptx::mapa(ready(), block % C.split_k));
      } else {
        ptx::mbarrier_arrive(ready());
      }
    }
    parity ^= 1;
  }

  // Four sums of a part.
  __device__ __forceinline__ void load(int g, int part, float (&values)[4]) const {
    const unsigned from = part_of(part % kGroups) + g * kWarpgroupThreads * 16;
    if constexpr (C.split_k > 1) {
      ptx::ld_cluster_v4_f32(ptx::mapa(from, part / kGroups), values);
    } else {
      ptx::ld_shared_v4_f32(from, values);
    }
  }

  // The sums of all parts, in their order. The owner's own is the first of its CTA.
  __device__ __forceinline__ void add_up(float (&sums)[kValues]) {
    ptx::mbarrier_wait_parity_acquire_cluster(ready(), parity);
#pragma unroll
    for (int g = 0; g < kValues / 4; ++g) {
      const float own[4] = {sums[4 * g], sums[4 * g + 1], sums[4 * g + 2], sums[4 * g + 3]};
      // A few parts at a time: the loads of all at once would ask for more registers than there are.
      constexpr int kAtOnce = kParts < 4 ? kParts : 4;
#pragma unroll
      for (int first = 0; first < kParts; first += kAtOnce) {
        float of_parts[kAtOnce][4];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (first + i < kParts && first + i != rank * kGroups) load(g, first + i, of_parts[i]);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          float sum = first == 0 ? 0.0f : sums[4 * g + v];
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i)
            if (first + i < kParts) sum += first + i == rank * kGroups ? own[v] : of_parts[i][v];
          sums[4 * g + v] = sum;
        }
      }
    }
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (C.split_k > 1) {
      if (lane < C.split_k) ptx::mbarrier_arrive_release_cluster(ptx::mapa(fetched(), lane));
    } else {
      if (lane == 0) ptx::mbarrier_arrive(fetched());
    }
    parity ^= 1;
  }

  // A CTA stays until its shared memory was read for the last time.
  __device__ __forceinline__ void finish() const {
    if (!is_owner()) ptx::mbarrier_wait_parity_acquire_cluster(fetched(), parity ^ 1);
  }
};

}  // namespace tessera::gemm_weights
