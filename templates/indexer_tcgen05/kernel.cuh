// The body of the indexer's scores for tcgen05. In and out, and who does what: see spec/indexer.h; Tensor Memory:
// spec/indexer_tcgen05.h. Loading, ranges and what lies outside of them are those of the other families.
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "indexer/outside.cuh"
#include "indexer/params.cuh"
#include "indexer/producer.cuh"
#include "indexer/ranges.cuh"
#include "indexer_tcgen05/consumer.cuh"
#include "indexer_tcgen05/multiplier.cuh"
#include "ptx/address.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/indexer_tcgen05.h"

namespace tessera::indexer_tcgen05 {

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  constexpr int kTmemAllocated = tmem_layout(C).allocated;
  const unsigned smem = ptx::shared_address(shared_memory);
  const unsigned tmem_address = smem + smem_layout(C).tmem_address;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(p.q);
    ptx::prefetch_tensormap(p.weights);
    ptx::prefetch_tensormap(p.keys);
    ptx::prefetch_tensormap(p.scales);
    if constexpr (is_fp4(C)) ptx::prefetch_tensormap(p.q_scales);
    common::init_ring<kQuerySlots>(query_barrier<C>(smem, 0), 1, 4 * C.consumers);
    common::init_ring<C.stages>(key_barrier<C>(smem, 0), 1, 4);
    common::init_ring<accumulators(C)>(sum_barrier<C>(smem, 0), 1, 4);
    ptx::fence_mbarrier_init();
  }
  if (warp == 1) {
    ptx::tcgen05_alloc<1>(tmem_address, kTmemAllocated);
    ptx::tcgen05_relinquish_alloc_permit<1>();
  }
  ptx::tcgen05_fence_before_thread_sync();
  ptx::griddepcontrol_wait();
  deal<C>(p, shared_memory + smem_layout(C).deal);
  ptx::tcgen05_fence_after_thread_sync();
  const unsigned tmem = ptx::ld_shared_u32(tmem_address);
  if (warp == 0) {
    produce<C>(p, smem, *reinterpret_cast<const Share*>(shared_memory + smem_layout(C).deal + kShareOffset));
  } else if (warp == 1) {
    multiply<C>(smem, tmem);
  } else if (warp < 4) {
    if constexpr (C.outside == Outside::minus_inf) fill_outside<C>(p, warp - 2);
  } else {
    consume<C>(p, smem, tmem, warp / 4 - 1);
  }
  // All sums are loaded.
  ptx::tcgen05_fence_before_thread_sync();
  __syncthreads();
  if (warp == 1) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc<1>(tmem, kTmemAllocated);
  }
}

}  // namespace tessera::indexer_tcgen05
