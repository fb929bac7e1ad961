// CTA pairs: each CTA's scores are sums over its half of head_dim. A thread sends its part to the same thread of the
// other CTA, which holds the same rows and keys, and adds what it gets. Both CTAs so have the same bits and decide
// alike from there on.
//
// One slot for each warpgroup. A block's scores may go there once the other CTA's warps have read those of the block
// before: they say so at "empty", long before it is asked for. That is a read which another CTA's st.async must come
// behind. Both are of the generic proxy, so the order is one of scopes: an arrival with the default scope, .cta, orders
// nothing for a thread of the other CTA, and ptxas lets it overtake the loads, whose values the sums need behind it. So
// a fence at cluster scope stands before it, and one behind the wait. Limited to shared memory they cost no way to the
// L2: what release and acquire at cluster scope cost, see ptx/mbarrier.cuh.
#pragma once

#include "fmha/matmul.cuh"
#include "fmha/schedule.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/shared.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
__device__ __forceinline__ void exchange_scores(Scores<C>& scores, int warpgroup, unsigned parity, unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kVectorBytes = kWarpgroupThreads * 16;
  const int other = cta_of_tile<C>() ^ 1;
  const int thread = ptx::forget(static_cast<int>(threadIdx.x)) % kWarpgroupThreads;
  const unsigned slot = smem + smem_layout(C).exchange.offset + warpgroup * exchange_slot_bytes(C) + thread * 16;
  const unsigned full = barrier_at<kBarriers.exchange_full>(smem, warpgroup);
  const unsigned empty = barrier_at<kBarriers.exchange_empty>(smem, warpgroup);
  ptx::mbarrier_wait_parity_relaxed_cluster(empty, parity ^ 1);
  ptx::fence_acquire_cluster_shared();
  if (thread == 0) ptx::mbarrier_arrive_expect_tx(full, exchange_slot_bytes(C));
  const unsigned slot_of_other = ptx::mapa(slot, other);
  const unsigned full_of_other = ptx::mapa(full, other);
#pragma unroll
  for (int i = 0; i < C.tile_n / 8; ++i) {
    ptx::st_async_v4_f32(slot_of_other + i * kVectorBytes, full_of_other, scores[4 * i], scores[4 * i + 1],
                         scores[4 * i + 2], scores[4 * i + 3]);
  }
  ptx::mbarrier_wait_parity(full, parity);
#pragma unroll
  for (int i = 0; i < C.tile_n / 8; ++i) {
    float part[4];
    ptx::ld_shared_v4_f32(slot + i * kVectorBytes, part);
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[4 * i + j] += part[j];
  }
  __syncwarp();
  ptx::fence_release_cluster_shared();
  if (thread % 32 == 0) ptx::mbarrier_arrive_relaxed_cluster(ptx::mapa(empty, other));
}

}  // namespace tessera::fmha
