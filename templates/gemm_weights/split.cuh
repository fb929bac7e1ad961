// Adding up the parts of K: every CTA of a tile leaves its sums in its own shared memory, and for each warpgroup's rows
// one CTA fetches them from all, in the order of the parts. So the result does not depend on who was first.
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

  const unsigned smem;
  const int warpgroup;
  const int rank;
  unsigned parity = 0;  // of tiles

  __device__ __forceinline__ int owner() const { return warpgroup % C.split_k; }
  __device__ __forceinline__ bool is_owner() const { return owner() == rank; }
  __device__ __forceinline__ unsigned own_part() const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    return smem + smem_layout(C).parts.offset + (warpgroup * (kValues / 4) * kWarpgroupThreads + thread) * 16;
  }

  // Leaves the sums where the owner finds them.
  __device__ __forceinline__ void share(const float (&sums)[kValues]) {
    const unsigned to = own_part();
    // The owner has read those of the tile before.
    ptx::mbarrier_wait_parity_acquire_cluster(common::barrier_at<kBarriers.fetched>(smem, warpgroup), parity ^ 1);
#pragma unroll
    for (int g = 0; g < kValues / 4; ++g)
      ptx::st_shared_v4_f32(to + g * kWarpgroupThreads * 16, sums[4 * g], sums[4 * g + 1], sums[4 * g + 2],
                            sums[4 * g + 3]);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      ptx::mbarrier_arrive_release_cluster(ptx::mapa(common::barrier_at<kBarriers.ready>(smem, warpgroup), owner()));
    parity ^= 1;
  }

  // The sums of all parts, in their order.
  __device__ __forceinline__ void add_up(float (&sums)[kValues]) {
    ptx::mbarrier_wait_parity_acquire_cluster(common::barrier_at<kBarriers.ready>(smem, warpgroup), parity);
    const unsigned from = own_part();
#pragma unroll
    for (int g = 0; g < kValues / 4; ++g) {
      const float own[4] = {sums[4 * g], sums[4 * g + 1], sums[4 * g + 2], sums[4 * g + 3]};
      float of_parts[C.split_k][4];
#pragma unroll
      for (int part = 0; part < C.split_k; ++part)
        if (part != rank) ptx::ld_cluster_v4_f32(ptx::mapa(from + g * kWarpgroupThreads * 16, part), of_parts[part]);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < C.split_k; ++part) sum += part == rank ? own[v] : of_parts[part][v];
        sums[4 * g + v] = sum;
      }
    }
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < C.split_k && lane != rank)
      ptx::mbarrier_arrive_release_cluster(ptx::mapa(common::barrier_at<kBarriers.fetched>(smem, warpgroup), lane));
    parity ^= 1;
  }

  // A CTA stays until its shared memory was read for the last time.
  __device__ __forceinline__ void finish() const {
    if (!is_owner())
      ptx::mbarrier_wait_parity_acquire_cluster(common::barrier_at<kBarriers.fetched>(smem, warpgroup), parity ^ 1);
  }
};

}  // namespace tessera::gemm_weights
