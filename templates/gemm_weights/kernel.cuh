// Product with 4-bit weights, warp-specialised for Hopper: one thread loads, one to four warpgroups widen, multiply and
// store. TMA and bulk copies fill the ring ahead of the consumers, across tiles too: while they store one tile, the
// first steps of the next are loaded. Roles: producer.cuh, consumer.cuh (widen.cuh, split.cuh, gemm/epilogue.cuh);
// schedule.cuh says who takes which tile. With few rows the thread that loads has activations alone: with mma.f16
// (direct_kernel) consumer warps load the weights themselves (direct.cuh, direct_split.cuh), with wgmma.f16
// (team_kernel) other threads do, for each warpgroup (team.cuh, team_lap.cuh, team_split.cuh).
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "gemm_weights/consumer.cuh"
#include "gemm_weights/direct.cuh"
#include "gemm_weights/gather.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/producer.cuh"
#include "gemm_weights/team.cuh"
#include "gemm_weights/team_lap.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// A full barrier takes one arrival, with the bytes, and one of each warp that gathers; a slot is emptied by the warps
// of its group. The parts of a block are ready when the warps of all but the owner have left theirs, and fetched by the
// owner's.
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr Barriers kOffsets = barriers(C);
  constexpr int kLoaders = 1 + (copies_rows(C) ? gather_warps(C) : 0);
  common::init_ring<C.stages>(smem + kOffsets.full[0], kLoaders, 4 * consumer_warpgroups(C) / k_groups(C));
  if constexpr (parts(C) > 1) {
#pragma unroll
    for (int i = 0; i < blocks_of_tile(C); ++i) {
      ptx::mbarrier_init(smem + kOffsets.ready[i], 4 * (parts(C) - 1));
      ptx::mbarrier_init(smem + kOffsets.fetched[i], 4);
    }
  }
  ptx::fence_mbarrier_init();
}

template <Config C>
__device__ __forceinline__ void meet() {
  if constexpr (C.split_k > 1) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

// By branches of their own: the loading warp, which has made the barriers and goes on to load, and the others, which
// wait for them.
inline constexpr int kBarrierOfStart = 1;  // 0 is __syncthreads()
template <Config C>
__device__ __forceinline__ void arrive_loading() {
  if constexpr (C.split_k > 1) {
    ptx::cluster_arrive_relaxed();
  } else {
    ptx::barrier_arrive(kBarrierOfStart, num_threads(C));
  }
}
// Each arrival at a cluster's barrier is followed by a wait.
template <Config C>
__device__ __forceinline__ void wait_loading() {
  if constexpr (C.split_k > 1) ptx::cluster_wait();
}
template <Config C>
__device__ __forceinline__ void meet_multiplying() {
  if constexpr (C.split_k > 1) return meet<C>();
  ptx::barrier_sync(kBarrierOfStart, num_threads(C));
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();

  ptx::griddepcontrol_launch_dependents();  // the next launch may get ready; it waits for the end of this one
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  const bool is_producer = threadIdx.x < 32 && ptx::elect_sync();
  Producer<C> producer{params, smem};
  if (is_producer) {
    if constexpr (!copies_rows(C)) ptx::prefetch_tensormap(params.a);
    init_barriers<C>(smem);
  }
  if (is_grouped(C) && threadIdx.x < 32) {
    ptx::griddepcontrol_wait();
    __syncwarp();
    producer.schedule.begin();
  }
  if (is_producer) {
    ptx::griddepcontrol_wait();
    producer.begin_item();
#pragma unroll 1
    for (int i = 0; i < C.stages; ++i)
      if (!producer.load_slot()) break;
  }
  if constexpr (has_d_map(C)) {
    if (threadIdx.x == kWarpgroupThreads) ptx::prefetch_tensormap(params.d);
  }
  meet<C>();

  constexpr RegisterBudget kBudget = register_budget(C);
  if (threadIdx.x < kWarpgroupThreads) {
    if constexpr (kBudget.producer < kBudget.entry) ptx::setmaxnreg_dec<kBudget.producer>();
    if (is_producer) {
      while (producer.load_slot()) {
      }
    }
    if constexpr (copies_rows(C)) {
      if (threadIdx.x / 32 >= kFirstGatherWarp) {
        ptx::griddepcontrol_wait();
        RowGatherer<C>{params, smem}.run();
      }
    }
  } else {
    if constexpr (kBudget.consumer > kBudget.entry) ptx::setmaxnreg_inc<kBudget.consumer>();
    ptx::griddepcontrol_wait();
    Consumer<C>{params, smem}.run();
  }
}

// A slot is emptied by the warps of its group. One thread, without a loop: a lane's own addresses would take a loop
// over lanes for each instruction.
template <Config C>
__device__ __forceinline__ void init_direct_barriers(unsigned smem) {
  constexpr Barriers kOffsets = barriers(C);
  common::init_ring<C.stages>(smem + kOffsets.full[0], copies_rows(C) && !is_widened(C) ? 32 : 1, blocks_of_tile(C));
  if constexpr (parts(C) > 1) {
#pragma unroll
    for (int i = 0; i < direct_warps(C); ++i)
      ptx::mbarrier_init(smem + kOffsets.ready[i], direct_senders(C, i / blocks_of_tile(C)));
#pragma unroll
    for (int i = 0; i < blocks_of_tile(C); ++i) ptx::mbarrier_init(smem + kOffsets.fetched[i], direct_owners(C));
  }
  ptx::fence_mbarrier_init();
}

template <Config C>
__device__ __forceinline__ void direct_kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();

  ptx::griddepcontrol_launch_dependents();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  if (threadIdx.x < 32) {
    const bool is_producer = ptx::elect_sync();
    if (is_producer) init_direct_barriers<C>(smem);
    __syncwarp();
    if constexpr (copies_rows(C)) {
      arrive_loading<C>();
      wait_loading<C>();
      ptx::griddepcontrol_wait();
      if constexpr (is_widened(C)) {
        RowGatherer<C>{params, smem}.run();
      } else if constexpr (!is_gathered(C)) {
        RowProducer<C>{params, smem}.run();
      } else {
        GatherProducer<C>{params, smem}.run();
      }
      return;
    }
    if (is_producer) ptx::prefetch_tensormap(params.a);
    arrive_loading<C>();
    Producer<C> producer{params, smem};
    ptx::griddepcontrol_wait();
    producer.schedule.begin();
    producer.load_activations(is_producer);
    __syncwarp();
    wait_loading<C>();
  } else {
    DirectConsumer<C> consumer{params, smem};
    consumer.start();
    meet_multiplying<C>();
    ptx::griddepcontrol_wait();
    consumer.run();
  }
}

// As direct_kernel, but that the loading warps come last, activations' first: teams begin at multiples of four warps. A
// slot is emptied by the warps of its group.
template <Config C>
__device__ __forceinline__ void init_team_barriers(unsigned smem) {
  constexpr Barriers kOffsets = barriers(C);
  common::init_ring<C.stages>(smem + kOffsets.full[0], 1, 4 * teams_of_group(C));
  if constexpr (parts(C) > 1) {
#pragma unroll 1
    for (int i = 0; i < blocks_of_tile(C) * kDirectParts; ++i) {
      ptx::mbarrier_init(smem + kOffsets.ready[i], C.split_k > 1 ? 1 : parts(C) - 1);
      ptx::mbarrier_init(smem + kOffsets.fetched[i], 1);
    }
  }
  ptx::fence_mbarrier_init();
}

template <Config C>
__device__ __forceinline__ void team_kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();

  ptx::griddepcontrol_launch_dependents();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  constexpr RegisterBudget kBudget = register_budget(C);
  const int loader = static_cast<int>(threadIdx.x) / 32 - 4 * consumer_warpgroups(C);
  if constexpr (kBudget.producer < kBudget.entry) {
    if (loader >= 0) ptx::setmaxnreg_dec<kBudget.producer>();
  }
  if (loader > team_loaders(C)) {
    arrive_loading<C>();
    wait_loading<C>();
  } else if (loader > 0) {
    TeamLoader<C> weights{params, smem, (loader - 1) * TeamLoader<C>::kTeams};
    const bool is_producer = ptx::elect_sync();
    if (is_producer) weights.init_barriers();
    __syncwarp();
    arrive_loading<C>();
    if (prefetched_steps(C) > 0 && is_producer) weights.prefetch();
    ptx::griddepcontrol_wait();
    weights.schedule.begin();
    weights.run(is_producer);
    __syncwarp();
    wait_loading<C>();
  } else if (loader == 0) {
    const bool is_producer = ptx::elect_sync();
    if (is_producer) {
      init_team_barriers<C>(smem);
      ptx::prefetch_tensormap(params.a);
    }
    __syncwarp();
    arrive_loading<C>();
    ptx::griddepcontrol_wait();
    Producer<C> activations{params, smem};
    activations.schedule.begin();
    activations.load_activations(is_producer);
    __syncwarp();
    wait_loading<C>();
  } else {
    if constexpr (kBudget.consumer > kBudget.entry) ptx::setmaxnreg_inc<kBudget.consumer>();
    meet_multiplying<C>();
    ptx::griddepcontrol_wait();
    if constexpr (has_half_block(C)) {
      if (__shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0) == consumer_warpgroups(C) - 1) {
        LapConsumer<C, true> consumer{params, smem};
        run_team<C>(consumer);
      } else {
        LapConsumer<C> consumer{params, smem};
        run_team<C>(consumer);
      }
    } else if constexpr (has_laps(C)) {
      LapConsumer<C> consumer{params, smem};
      run_team<C>(consumer);
    } else {
      TeamConsumer<C> consumer{params, smem};
      run_team<C>(consumer);
    }
  }
}

}  // namespace tessera::gemm_weights
