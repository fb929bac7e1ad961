// 8-bit keys under 16-bit queries: four warps that bring each block from a raw slot to one that the products read. In
// the order of loads, K one block ahead of V, so that all of them work on what is needed next.
//
// Keys that are values too leave no room for raw slots: Q and two slots of 64 keys are 216 KB, P 8 KB. So their bytes
// come to the second half of the slot that they will fill, and are widened where they lie, panel by panel: panel j of 9
// takes the place of bytes of panels up to 2 j - 8, which all four warps must have read. So they meet before panels 4,
// 7 and 8 are written.
#pragma once

#include "attention/widen.cuh"
#include "attention/widen_scaled.cuh"
#include "fmha/ring.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

inline constexpr int kBarrierOfWidening = 3;  // those of the softmax come before

// Whether warps must meet between reading panel `panel` of `panels` and writing it: where that takes the place of bytes
// which they need not all have read when they met last.
TESSERA_HD constexpr bool meets_at(int panel, int panels) {
  int read = -1;
  for (int j = 0; j <= panel; ++j) {
    const bool meets = 2 * j + 1 - panels > read;
    if (j == panel) return meets;
    if (meets) read = j;
  }
  return false;
}

// Of the rings: a slot of K or V is full when each widening warp has written its part, a raw one is empty
// when each has read it.
template <Config C>
__device__ __forceinline__ void init_widened_barriers(unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
#pragma unroll 1
  for (int i = 0; i < C.stages; ++i) {
    ptx::mbarrier_init(barrier_at<kBarriers.k_full>(smem, i), kWideningWarps);
    ptx::mbarrier_init(barrier_at<kBarriers.k_empty>(smem, i), 1);
    if constexpr (is_latent(C)) ptx::mbarrier_init(barrier_at<kBarriers.raw_k_full>(smem, i), 1);
    if constexpr (!is_latent(C)) {
      ptx::mbarrier_init(barrier_at<kBarriers.v_full>(smem, i), kWideningWarps);
      ptx::mbarrier_init(barrier_at<kBarriers.v_empty>(smem, i), 1);
    }
  }
  if constexpr (!is_latent(C)) {
#pragma unroll 1
    for (int i = 0; i < raw_stages(C); ++i) {
      ptx::mbarrier_init(barrier_at<kBarriers.raw_k_full>(smem, i), 1);
      ptx::mbarrier_init(barrier_at<kBarriers.raw_k_empty>(smem, i), kWideningWarps);
      ptx::mbarrier_init(barrier_at<kBarriers.raw_v_full>(smem, i), 1);
      ptx::mbarrier_init(barrier_at<kBarriers.raw_v_empty>(smem, i), kWideningWarps);
    }
  }
}

// The next block of K, or of V.
template <Config C, bool kIsV>
__device__ __forceinline__ void widen_block(unsigned smem, fmha::RingPosition<raw_stages(C)>& raw,
                                            fmha::RingPosition<C.stages>& wide) {
  constexpr LoadRing kRing = load_ring(C, kIsV);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kSlots = kIsV ? smem_layout(C).v.offset : smem_layout(C).k.offset;
  constexpr int kSlotBytes = kIsV ? v_slot_bytes(C) : k_slot_bytes(C);
  constexpr BarrierRow kFull = kIsV ? kBarriers.v_full : kBarriers.k_full;
  constexpr BarrierRow kEmpty = kIsV ? kBarriers.v_empty : kBarriers.k_empty;
  ptx::mbarrier_wait_parity(barrier_at<kRing.full>(smem, raw.slot()), raw.parity());
  ptx::mbarrier_wait_parity(barrier_at<kEmpty>(smem, wide.slot()), wide.parity() ^ 1);
  constexpr int kColumns = kIsV ? v_columns(C) : qk_columns(C);
  const unsigned from = smem + kRing.offset + raw.slot() * kRing.slot_bytes;
  const unsigned to = smem + kSlots + wide.slot() * kSlotBytes;
  const int thread = static_cast<int>(threadIdx.x) % (32 * kWideningWarps);
  if constexpr (has_key_scales(C.facts)) {
    const unsigned scales = smem + scales_offset(C, kIsV) + raw.slot() * scale_slot_bytes(C, kColumns);
    attention::widen_scaled_slot<C, kColumns, kWideningWarps>(from, scales, to, thread);
  } else {
    attention::widen_slot<C, kIsV ? p_dtype(C) : C.facts.dtype, kColumns, kWideningWarps>(from, to, thread);
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    ptx::mbarrier_arrive(barrier_at<kFull>(smem, wide.slot()));
    ptx::mbarrier_arrive(barrier_at<kRing.empty>(smem, raw.slot()));
  }
  raw.advance();
  wide.advance();
}

// The next block of keys that are values too. That its bytes are there says that the slot was empty.
template <Config C>
__device__ __forceinline__ void widen_in_place(unsigned smem, fmha::RingPosition<C.stages>& ring) {
  constexpr LoadRing kRing = load_ring(C, false);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kPanels = qk_columns(C) / key_span_bytes(C.facts, C.swizzle, qk_columns(C));
  ptx::mbarrier_wait_parity(barrier_at<kRing.full>(smem, ring.slot()), ring.parity());
  attention::widen_slot<C, C.facts.dtype, qk_columns(C), kWideningWarps>(
      smem + kRing.offset + ring.slot() * kRing.slot_bytes,
      smem + smem_layout(C).k.offset + ring.slot() * k_slot_bytes(C),
      static_cast<int>(threadIdx.x) % (32 * kWideningWarps), [](int panel) {
        if (meets_at(panel, kPanels)) ptx::barrier_sync(kBarrierOfWidening, 32 * kWideningWarps);
      });
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.k_full>(smem, ring.slot()));
  ring.advance();
}

// K and V of all tiles.
template <Config C>
__device__ __forceinline__ void widen_kv(const Params& p, unsigned smem) {
  const Schedule<C> schedule{p};
  [[maybe_unused]] fmha::RingPosition<raw_stages(C)> raw_k, raw_v;
  [[maybe_unused]] fmha::RingPosition<C.stages> k_ring, v_ring;
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
    const Blocks blocks = KeyBlocks<C>(p, tile).of_tile();
    if constexpr (is_latent(C)) {
#pragma unroll 1
      for (int block = blocks.end - 1; block >= blocks.begin; --block) widen_in_place<C>(smem, k_ring);
    } else {
#pragma unroll 1
      for (int block = blocks.end - 1; block >= blocks.begin - 1; --block) {
        if (block >= blocks.begin) widen_block<C, false>(smem, raw_k, k_ring);
        if (block + 1 < blocks.end) widen_block<C, true>(smem, raw_v, v_ring);
      }
    }
  }
}

}  // namespace tessera::fmha_tcgen05
