// Matrix product by mma.sync, warp-specialised: one warp loads, the others multiply and store, on their own from the
// ring on. Roles: producer.cuh, copies.cuh, consumer.cuh (fragments.cuh, split.cuh, epilogue.cuh);
// gemm/product_walk.cuh says who takes which tile.
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "gemm/product_params.cuh"
#include "gemm_mma/consumer.cuh"
#include "gemm_mma/copies.cuh"
#include "gemm_mma/producer.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

// A full barrier takes one arrival (the loading thread, with the bytes) and those of the lanes that copy rows
// by a list or scales, an empty one that of every warp that reads.
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr Barriers kOffsets = barriers(C);
  constexpr int kLoaders = 1 + (has_copies(C) ? 32 * kCopyWarps : 0);
  common::init_ring<C.stages>(smem + kOffsets.full[0], kLoaders, consumer_warps(C));
  ptx::fence_mbarrier_init();
}

// Maps that a Config has no use for may be any: they are not read.
template <Config C>
__device__ __forceinline__ void kernel(const gemm::ProductParams& params) {
  common::require_legal<why_invalid(C)>();

  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  if (threadIdx.x < 32 && ptx::elect_sync()) init_barriers<C>(smem);
  // Another warp fetches the maps meanwhile: the first load needs them.
  if (threadIdx.x == kWarpgroupThreads) {
    if constexpr (!is_gathered(C)) ptx::prefetch_tensormap(params.a);
    ptx::prefetch_tensormap(params.b);
    if constexpr (products(C) == 2) ptx::prefetch_tensormap(params.b2);
    if constexpr (has_d_map(C)) ptx::prefetch_tensormap(params.d);
    if constexpr (is_scaled(C) && !copies_sfb(C)) {
      if constexpr (!copies_sfa(C)) ptx::prefetch_tensormap(params.sfa);
      ptx::prefetch_tensormap(params.sfb);
    }
  }
  __syncthreads();

  constexpr RegisterBudget kBudget = register_budget(C);
  if (threadIdx.x < kWarpgroupThreads) {
    if constexpr (kBudget.producer < kBudget.entry) ptx::setmaxnreg_dec<kBudget.producer>();
    if (threadIdx.x < 32 && ptx::elect_sync()) produce<C>(params, smem);
    if constexpr (has_copies(C))
      if (threadIdx.x / 32 >= kFirstCopyWarp) Copier<C>{params, smem}.run();
    if constexpr (C.split_k > 1) {
      // The consumers' barrier between the parts of K is the whole cluster's.
      __syncwarp();
      ptx::cluster_arrive_relaxed();
      ptx::cluster_wait();
    }
  } else {
    if constexpr (kBudget.consumer > kBudget.entry) ptx::setmaxnreg_inc<kBudget.consumer>();
    Consumer<C>{params, smem}.run();
  }
  if constexpr (C.split_k > 1) {
    // A CTA stays until the others have fetched its sums.
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

}  // namespace tessera::gemm_mma
