// Attention over keys that are values too, warp-specialised for Hopper: one warpgroup produces, two consume. Roles in
// their order: producer.cuh, consumer.cuh (matmul.cuh) or transposed.cuh, epilogue.cuh; deal.cuh says who takes which
// keys.
#pragma once

#include "common/illegal_config.cuh"
#include "common/keep_values.cuh"
#include "common/pieces.cuh"
#include "fmha_latent/consumer.cuh"
#include "fmha_latent/gather.cuh"
#include "fmha_latent/gather_cache.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/producer.cuh"
#include "fmha_latent/registers.cuh"
#include "fmha_latent/tails.cuh"
#include "fmha_latent/transposed.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// Full barriers take one arrival, with the bytes; those of keys that are gathered one of each thread, behind its
// copies, and of a block's first group another of each warp, which says what is there; those of a cache one of each
// warp that widened. What consumers give back takes one of each warp, of both CTAs if they share keys, P too.
template <Config C>
__device__ __forceinline__ int arrivals_of_group(int group) {
  if constexpr (!gathers(C)) {
    return 1;
  } else if constexpr (has_cache(C.facts)) {
    return kGatherWarps;
  } else {
    return 32 * kGatherWarps + (group == 0 ? kGatherWarps : 0);
  }
}
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  ptx::mbarrier_init(barrier_at<kBarriers.q_full>(smem), 1);
  ptx::mbarrier_init(barrier_at<kBarriers.q_empty>(smem), 4 * kConsumers);
#pragma unroll 1
  for (int i = 0; i < slots(C) * full_barriers(C); ++i)
    ptx::mbarrier_init(barrier_at<kBarriers.k_full>(smem, i), arrivals_of_group<C>(i % full_barriers(C)));
#pragma unroll 1
  for (int i = 0; i < slots(C) * kConsumers; ++i)
    ptx::mbarrier_init(barrier_at<kBarriers.k_empty>(smem, i), shares_keys(C) ? 8 : 4);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) ptx::mbarrier_init(barrier_at<kBarriers.p_full>(smem, i), 4);
  ptx::fence_mbarrier_init();
}

template <Config C>
__device__ __forceinline__ void set_up(const Params& params, unsigned smem) {
  if (threadIdx.x == 0) init_barriers<C>(smem);
  if (threadIdx.x == 32) {
    ptx::prefetch_tensormap(params.q);
    ptx::prefetch_tensormap(params.k);
  }
  // Launched before the launch before it ends; the merge, which waits for the end of all, likewise.
  if constexpr (is_dealt(C)) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    if (threadIdx.x == 0) clear_tail<C>(params);
  }
  if constexpr (shares_keys(C)) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

// Consumers are compiled beside all else. Both by one piece: with a piece for each, which compile in less time, their
// code is there twice, and kernels took 5 to 7 % longer on an H200.
inline constexpr int kPieceOfConsumers = 2;

// Roles are classes, as in fmha/kernel.cuh.
template <Config C>
struct ProducerRole {
  const Params& params;
  const unsigned smem;

  __device__ __forceinline__ void operator()() const {
    ptx::setmaxnreg_dec<register_budget(C).producer>();
    if constexpr (has_cache(C.facts)) {
      // Without it what widens took up to 3 % longer, and some spilled (H200).
      common::keep_values();
      gather_cache<C>(params, smem);
    } else if constexpr (gathers(C)) {
      gather<C>(params, smem);
    } else {
      produce<C>(params, smem);
    }
  }
};

template <Config C>
struct ConsumerRole {
  const Params& params;
  const unsigned smem;
  const int warpgroup;

  __device__ __forceinline__ void operator()() const {
    ptx::setmaxnreg_inc<register_budget(C).consumer>();
    if constexpr (widens(C)) {
      // Without it a pair of blocks had up to 90 instructions more where lengths are read, and took as long (H200).
      common::keep_values();
      TransposedConsumer<C>{params, smem, warpgroup - 1}.run();
    } else {
      Consumer<C>{params, smem, warpgroup - 1}.run();
    }
  }
};

template <Config C>
__device__ __forceinline__ void run_roles(const Params& params, unsigned smem) {
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  if constexpr (common::kIsFirstPiece) {
    if (warpgroup == 0) return ProducerRole<C>{params, smem}();
  }
  common::in_piece<kPieceOfConsumers, has_cache(C.facts)>(ConsumerRole<C>{params, smem, warpgroup});
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();

  RegistersOf<C>::declare();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  if constexpr (common::kIsFirstPiece) set_up<C>(params, smem);
  run_roles<C>(params, smem);
  // Nobody writes to a CTA that is no more.
  if constexpr (shares_keys(C)) {
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

}  // namespace tessera::fmha_latent
