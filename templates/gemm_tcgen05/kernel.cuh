// Matrix product, warp-specialised for tcgen05: one thread loads, one warp multiplies, four warps store.
//
// TMA fills the ring ahead of the products, across tiles too, and the products fill one accumulator while the other is
// stored. Roles: producer.cuh, multiplier.cuh, storer.cuh (epilogue.cuh); schedule.cuh says who takes which tile.
#pragma once

#include "common/illegal_config.cuh"
#include "gemm_tcgen05/multiplier.cuh"
#include "gemm_tcgen05/params.cuh"
#include "gemm_tcgen05/producer.cuh"
#include "gemm_tcgen05/storer.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// One thread. Full barriers take the arrival that announces their bytes, those of full sums a commit, empty ones one of
// each pair of the cluster, those of empty sums every storing warp of the pair.
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr Barriers kOffsets = barriers(C);
#pragma unroll
  for (int i = 0; i < kOffsets.count; ++i) {
    const bool is_empty = i >= kOffsets.empty.index && i < kOffsets.empty.index + C.stages;
    ptx::mbarrier_init(smem + kOffsets.full[i], i >= kOffsets.sums_empty.index ? kStoreWarps * pair_size(C)
                                                : is_empty                     ? pairs(C)
                                                                               : 1);
  }
  ptx::fence_mbarrier_init();
}

// All threads of the CTA, or of the cluster.
template <Config C>
__device__ __forceinline__ void synchronize() {
  if constexpr (cluster_size(C) > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();
  constexpr SmemLayout kMap = smem_layout(C);
  constexpr int kTmemAllocated = tmem_layout(C).allocated;

  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(params.a);
    ptx::prefetch_tensormap(params.b);
    if constexpr (!is_quantized(C)) ptx::prefetch_tensormap(params.d);
  }
  if (threadIdx.x == 32) init_barriers<C>(smem);
  if (warp == 2) {
    ptx::tcgen05_alloc<pair_size(C)>(smem + kMap.tmem_address.offset, kTmemAllocated);
    ptx::tcgen05_relinquish_alloc_permit<pair_size(C)>();
  }
  if (params.k == 0) clear_slots<C>(smem);
  ptx::tcgen05_fence_before_thread_sync();
  synchronize<C>();
  ptx::tcgen05_fence_after_thread_sync();
  const unsigned tmem = ptx::ld_shared_u32(smem + kMap.tmem_address.offset);

  if (warp >= kFirstStoreWarp) {
    store<C>(params, smem, tmem);
  } else {
    if (warp == 0) {
      if (ptx::elect_sync()) produce<C>(params, smem);
      __syncwarp();
    } else if (warp == 1) {
      multiply<C>(params, smem, tmem);
      __syncwarp();
    }
    // The storing warps' barrier between the parts of K is the whole cluster's.
    if constexpr (C.split_k > 1) {
      ptx::cluster_arrive();
      ptx::cluster_wait();
    }
  }
  // All sums are loaded, and no other CTA reaches into this one's memory any more.
  ptx::tcgen05_fence_before_thread_sync();
  synchronize<C>();
  if (warp == 2) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc<pair_size(C)>(tmem, kTmemAllocated);
  }
}

}  // namespace tessera::gemm_tcgen05
