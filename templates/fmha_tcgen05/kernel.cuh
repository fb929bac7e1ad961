// Fused attention forward on tcgen05, warp-specialised for Blackwell's data-centre GPUs.
//
// Every kind of work has warps of its own, and they meet at mbarriers only: loads (load.cuh), products (mma.cuh),
// exponentials (softmax.cuh), rescaling and the way out (correction.cuh); schedule.cuh says who takes which tile. A
// step of a Q tile goes round like this:
//
//   load_kv --k_full--> mma: S = Q K^T --s_full--> softmax: S to P --p_full--> mma: O += P V --o_done--+
//                                                     |                          ^                     |
//                                                     +-factors_full-> correction-+ (p_full) <---------+
//
// No Blackwell device has run this: ptxas takes it, and the emulator executes it.
#pragma once

#include "common/illegal_config.cuh"
#include "fmha_tcgen05/correction.cuh"
#include "fmha_tcgen05/gather.cuh"
#include "fmha_tcgen05/load.cuh"
#include "fmha_tcgen05/mma.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/placed_load.cuh"
#include "fmha_tcgen05/pools.cuh"
#include "fmha_tcgen05/softmax.cuh"
#include "fmha_tcgen05/widen.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// Barriers that a commit or a loading thread fills take one arrival; those of whole warps one from each warp. p_full
// takes both warpgroups of all CTAs of the tile.
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
#pragma unroll 1
  for (int i = 0; i < q_tiles(C); ++i) {
    ptx::mbarrier_init(barrier_at<kBarriers.q_full>(smem, i), 1);
    ptx::mbarrier_init(barrier_at<kBarriers.q_empty>(smem, i), 1);
    ptx::mbarrier_init(barrier_at<kBarriers.o_staged>(smem, i), 4);
    ptx::mbarrier_init(barrier_at<kBarriers.o_done>(smem, i), 1);
    ptx::mbarrier_init(barrier_at<kBarriers.last_full>(smem, i), 4);
  }
  if constexpr (o_passes(C) > 1) ptx::mbarrier_init(barrier_at<kBarriers.o_read>(smem), 1);
  if constexpr (widens_keys(C.facts)) {
    init_widened_barriers<C>(smem);
  } else if constexpr (gathers(C)) {
    init_gathered_barriers<C>(smem);
  } else {
#pragma unroll 1
    for (int i = 0; i < 4 * C.stages; ++i) ptx::mbarrier_init(barrier_at<kBarriers.k_full>(smem, i), 1);
  }
#pragma unroll 1
  for (int i = 0; i < step_slots(C); ++i) {
    ptx::mbarrier_init(barrier_at<kBarriers.s_full>(smem, i), 1);
    ptx::mbarrier_init(barrier_at<kBarriers.p_full>(smem, i), 8 * ctas_per_tile(C));
    if constexpr (has_p_parts(C)) ptx::mbarrier_init(barrier_at<kBarriers.p_rest>(smem, i), 4 * ctas_per_tile(C));
    ptx::mbarrier_init(barrier_at<kBarriers.factors_full>(smem, i), 4);
  }
  if constexpr (C.facts.kv_layout != KvLayout::dense) ptx::mbarrier_init(barrier_at<kBarriers.tail>(smem), 1);
  ptx::fence_mbarrier_init();
}

// Zeroes the rows of the Q slots that belong to no query, which no load writes: products read them.
template <Config C>
__device__ __forceinline__ void clear_unused_rows(unsigned smem) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kPanelBytes = rows_per_cta(C) * kSpan;
  constexpr int kUnusedBytes = (rows_per_cta(C) - used_rows(C)) * kSpan;
  if constexpr (kUnusedBytes > 0) {
    constexpr int kOfAll = q_tiles(C) * q_slot_bytes(C) / kPanelBytes * kUnusedBytes;
#pragma unroll 1
    for (int i = 16 * static_cast<int>(threadIdx.x); i < kOfAll; i += 16 * num_threads(C)) {
      const int panel = i / kUnusedBytes;
      const int first = panel * kPanelBytes + used_rows(C) * kSpan;
      ptx::st_shared_v4(smem + smem_layout(C).q.offset + first + i - panel * kUnusedBytes, {0, 0, 0, 0});
    }
    ptx::fence_proxy_async_shared();
  }
}

// All threads of a tile's CTAs.
template <Config C>
__device__ __forceinline__ void sync_tile() {
  if constexpr (C.cta_pair) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

template <Config C>
__device__ __forceinline__ void run_control_warp(const Params& params, unsigned smem, unsigned tmem, int warp) {
  if (gathers(C) && warp == kWarpOfKv) return;  // the gathering warps' work
  if (warp == kWarpOfKv && has_no_keys<C>(params)) {
    if (ptx::elect_sync()) load_nothing<C>(params, smem);
    return;
  }
  if constexpr (has_pools(C.facts) && !gathers(C)) {
    if (warp == kWarpOfKv) {
      load_pools<C>(params, smem);
      return;
    }
  }
  if constexpr (C.facts.kv_layout != KvLayout::dense) {
    if (warp == kWarpOfKv) {
      load_placed_keys<C>(params, smem);
      return;
    }
  }
  if (!ptx::elect_sync()) return;
  if (warp == kWarpOfKv) {
    load_kv<C>(params, smem);
  } else if (warp == kWarpOfQ) {
    load_q<C>(params, smem);
  } else if (warp == kWarpOfO) {
    store_o<C>(params, smem);
  } else {
    issue_products<C>(params, smem, tmem);
  }
}

// The warpgroups behind the correction's.
template <Config C>
__device__ __forceinline__ void run_softmax(const Params& params, unsigned smem, unsigned tmem, int warpgroup,
                                            int lane) {
  constexpr RegisterBudget kBudget = register_budget(C);
  if constexpr (widens_keys(C.facts)) {
    if (warpgroup == 2 + q_tiles(C)) {
      ptx::setmaxnreg_dec<kBudget.widening>();
      widen_kv<C>(params, smem);
      return;
    }
  }
  if constexpr (gathers(C)) {
    if (warpgroup == 2 + q_tiles(C)) {
      ptx::setmaxnreg_inc<kBudget.widening>();
      gather_kv<C>(params, smem);
      return;
    }
  }
  ptx::setmaxnreg_inc<kBudget.softmax>();
  Softmax<C>{params, smem, tmem, warpgroup - 2, lane}.run();
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();
  constexpr int kCtas = ctas_per_tile(C);

  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  // Taken from lane 0, so that the compiler knows one value for the warp.
  const int warp = __shfl_sync(0xffffffff, warp_at(C, static_cast<int>(threadIdx.x) / 32), 0);
  const unsigned tmem_slot = smem + smem_layout(C).tmem.offset;
  if (warp == kWarpOfKv && ptx::elect_sync()) {
    init_barriers<C>(smem);
    ptx::prefetch_tensormap(params.q);
    ptx::prefetch_tensormap(params.k);
    ptx::prefetch_tensormap(params.v);
    ptx::prefetch_tensormap(params.o);
  }
  if (warp == kWarpOfMma) {
    ptx::tcgen05_alloc<kCtas>(tmem_slot, allocated_columns(C));
    ptx::tcgen05_relinquish_alloc_permit<kCtas>();
  }
  clear_unused_rows<C>(smem);
  if (!gathers(C) && has_no_keys<C>(params)) clear_kv<C>(smem);
  if constexpr (is_split(C)) {
    ptx::griddepcontrol_wait();               // what came before in the stream, whose end this launch did not wait for
    ptx::griddepcontrol_launch_dependents();  // the merge waits for the end of all
  }
  ptx::tcgen05_fence_before_thread_sync();
  __syncwarp();
  sync_tile<C>();
  ptx::tcgen05_fence_after_thread_sync();
  const unsigned tmem = ptx::ld_shared_u32(tmem_slot);

  constexpr RegisterBudget kBudget = register_budget(C);
  const int warpgroup = warp / 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const unsigned tmem_of_warp = tmem + (static_cast<unsigned>(warp % 4) << 21);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<kBudget.control>();
    run_control_warp<C>(params, smem, tmem, warp);
  } else if (warpgroup == 1) {
    if constexpr (kBudget.correction < kBudget.entry) {
      ptx::setmaxnreg_dec<kBudget.correction>();
    } else {
      ptx::setmaxnreg_inc<kBudget.correction>();
    }
    Correction<C>{params, smem, tmem_of_warp, lane}.run();
  } else {
    run_softmax<C>(params, smem, tmem_of_warp, warpgroup, lane);
  }
  // Nobody reads Tensor Memory, or sends to the other CTA, any more.
  ptx::tcgen05_fence_before_thread_sync();
  __syncwarp();
  sync_tile<C>();
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == kWarpOfMma) ptx::tcgen05_dealloc<kCtas>(tmem, allocated_columns(C));
}

}  // namespace tessera::fmha_tcgen05
