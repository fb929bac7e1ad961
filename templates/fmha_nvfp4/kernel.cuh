// Attention of NVFP4 operands by mma.sync, warp-specialised: one warp loads, the others multiply and store, on their
// own from the ring on. Roles: producer.cuh, consumer.cuh (probabilities.cuh, store.cuh); tiles.cuh says who takes
// which tile.
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "fmha_nvfp4/consumer.cuh"
#include "fmha_nvfp4/producer.cuh"
#include "fmha_nvfp4/tiles.cuh"
#include "ptx/address.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/fmha_nvfp4.h"

namespace tessera::fmha_nvfp4 {

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();
  constexpr BarrierRow kFull = full_barriers(C);

  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  // A full barrier takes one arrival (the loading thread, with the bytes), an empty one that of every warp that reads.
  if (threadIdx.x < 32 && ptx::elect_sync()) {
    common::init_ring<C.stages>(common::barrier_at<kFull>(smem), 1, consumer_warps(C));
    ptx::fence_mbarrier_init();
    if constexpr (stores_boxes(C)) ptx::prefetch_tensormap(*params.o);
  }
  __syncthreads();
  if constexpr (is_split(C)) {
    ptx::griddepcontrol_wait();               // what came before in the stream, whose end this launch did not wait for
    ptx::griddepcontrol_launch_dependents();  // the merge waits for the end of all
  }
  constexpr RegisterBudget kBudget = register_budget(C);
  if (threadIdx.x < kWarpgroupThreads) {
    if constexpr (kBudget.producer < kBudget.entry) ptx::setmaxnreg_dec<kBudget.producer>();
    if (threadIdx.x < 32 && ptx::elect_sync()) produce<C>(params, smem);
  } else {
    if constexpr (kBudget.consumer > kBudget.entry) ptx::setmaxnreg_inc<kBudget.consumer>();
    Consumer<C>(params, smem).run();
  }
}

}  // namespace tessera::fmha_nvfp4
