// Matrix product, warp-specialised for Hopper: one thread loads, one to three warpgroups multiply and store.
//
// A CTA of a cluster stays until the others have reached its shared memory for the last time: the producer waits for
// the slots to come back, and for the partial sums to be fetched, where they are. A barrier of the cluster at the end
// would have to order memory for that, a fence that waits for everything in flight.
//
// Products with factors of blocks get ready while the launch before ends: barriers, maps, and each role its first tile,
// whose divisions took 0.3 to 0.5 us behind the wait, of products of 5 to 10 us on an H200; the first weights are on
// their way to the L2 by then (producer.cuh).
//
// TMA fills the ring ahead of the consumers, across tiles too: while the consumers store one tile, the first steps of
// the next are loaded. Stores leave through staging memory of their own, asynchronously. Roles: producer.cuh,
// consumer.cuh (matmul.cuh, split.cuh, epilogue.cuh); schedule.cuh says who takes which tile.
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "gemm/consumer.cuh"
#include "gemm/gather.cuh"
#include "gemm/params.cuh"
#include "gemm/producer.cuh"
#include "gemm/scales.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// One thread: the instruction takes its address from uniform registers, so threads with a barrier each would be taken
// one after the other (13 slots: 0.6 us). A full barrier takes one arrival (the loading thread, with the bytes), one
// more where factors are loaded too, and one of each warp that gathers; a slot is emptied by every warp that reads it,
// of every CTA that this one's loads reach; partial sums are fetched by every consumer warp of every part, or come as
// bytes.
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr int kWarps = 4 * (is_ping_pong(C) ? 1 : consumer_warpgroups(C));
  constexpr int kSources = C.cluster_m + C.cluster_n - 1;
  constexpr Barriers kOffsets = barriers(C);
  constexpr int kLoaders = 1 + (has_scale_blocks(C) ? 1 : 0) + (is_gathered(C) ? kGatherWarps : 0);
  common::init_ring<C.stages>(smem + kOffsets.full[0], kLoaders, kWarps * kSources);
  if constexpr (C.split_k > 1) ptx::mbarrier_init(smem + kOffsets.fetched[0], sends_sums(C) ? 1 : kWarps * C.split_k);
  ptx::fence_mbarrier_init();
  if constexpr (sends_sums(C))
    ptx::mbarrier_arrive_expect_tx(smem + kOffsets.fetched[0], consumer_warpgroups(C) * incoming_bytes(C));
}

// All threads of the CTA, or of the cluster: for who is where. Data that threads hand each other needs more.
template <Config C>
__device__ __forceinline__ void synchronize() {
  if constexpr (cluster_size(C) > 1) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();

  if constexpr (has_scale_blocks(C))
    if (!lets_next_start_late<C>()) ptx::griddepcontrol_launch_dependents();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  // Another warp fetches the maps meanwhile: the first load needs them.
  if (threadIdx.x < 32 && ptx::elect_sync()) init_barriers<C>(smem);
  if (threadIdx.x == kWarpgroupThreads) {
    if constexpr (!is_gathered(C)) ptx::prefetch_tensormap(params.a);
    ptx::prefetch_tensormap(params.b);
    if constexpr (is_dual(C)) ptx::prefetch_tensormap(*params.b2);
    ptx::prefetch_tensormap(params.d);
  }
  synchronize<C>();
  if constexpr (has_scale_blocks(C) && !roles_wait(C)) ptx::griddepcontrol_wait();

  constexpr RegisterBudget kBudget = register_budget(C);
  if (threadIdx.x < kWarpgroupThreads) {
    if constexpr (kBudget.producer < kBudget.entry) ptx::setmaxnreg_dec<kBudget.producer>();
    if (threadIdx.x < 32 && ptx::elect_sync()) produce<C>(params, smem);
    if constexpr (has_scale_blocks(C)) {
      const int warp = static_cast<int>(threadIdx.x) / 32 - 1;
      if constexpr (joins_factors(C)) {
        if (warp == 0 || warp == 1) FactorJoiner<C>{params, smem, warp}.run();
      } else {
        if (warp == 0) ScaleLoader<C>{params, smem}.run();
      }
    }
    if constexpr (is_gathered(C)) {
      if (threadIdx.x / 32 >= kFirstGatherWarp) RowGatherer<C>{params, smem}.run();
    }
    __syncwarp();
    // The consumers' barrier between the parts of K is the whole cluster's.
    if constexpr (C.split_k > 1 && !sends_sums(C)) {
      ptx::cluster_arrive_relaxed();
      ptx::cluster_wait();
      if (threadIdx.x == 0) ptx::mbarrier_wait_parity(barriers_at<C>(smem).fetched[0], 0);
    }
  } else {
    if constexpr (kBudget.consumer > kBudget.entry) ptx::setmaxnreg_inc<kBudget.consumer>();
    consume<C>(params, smem);
  }
}

}  // namespace tessera::gemm
