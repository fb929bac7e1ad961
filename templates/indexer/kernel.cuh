// The body of the indexer's scores. In and out, and who does what: see spec/indexer.h.
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "indexer/consumer.cuh"
#include "indexer/outside.cuh"
#include "indexer/params.cuh"
#include "indexer/producer.cuh"
#include "indexer/ranges.cuh"
#include "ptx/address.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/indexer.h"

namespace tessera::indexer {

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(p.q);
    ptx::prefetch_tensormap(p.weights);
    ptx::prefetch_tensormap(p.keys);
    ptx::prefetch_tensormap(p.scales);
    if constexpr (is_fp4(C)) ptx::prefetch_tensormap(p.q_scales);
    common::init_ring<kQuerySlots>(query_barrier<C>(smem, 0), 1, 4 * C.consumers);
    common::init_ring<C.stages>(key_barrier<C>(smem, 0), 1, 4);
    ptx::fence_mbarrier_init();
  }
  ptx::griddepcontrol_wait();
  deal<C>(p, shared_memory + smem_layout(C).deal);
  // By a shuffle the compiler knows that all lanes have the same: descriptors stay in uniform registers.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarp, 0);
  constexpr RegisterBudget kBudget = register_budget(C);
  if (warp < 4) {
    if constexpr (kBudget.producer > 0) ptx::setmaxnreg_dec<kBudget.producer>();
    if (warp < loaders(C)) {
      produce<C>(p, smem, *reinterpret_cast<const Share*>(shared_memory + smem_layout(C).deal + kShareOffset),
                 loaders(C) > 1 ? warp : 0);
    } else if constexpr (C.outside == Outside::minus_inf) {
      fill_outside<C>(p, warp - 1);
    }
  } else {
    if constexpr (kBudget.producer > 0) ptx::setmaxnreg_inc<kBudget.consumer>();
    consume<C>(p, smem, warp / 4 - 1);
  }
}

}  // namespace tessera::indexer
