// The producer warpgroup: one warp loads K and V, one loads Q, one stores O, each through one elected thread.
//
// Key blocks are taken from the last to the first, so that the blocks that need a mask come first. K runs one block
// ahead of V, as the consumers use them. Every tile's Q is loaded, even if no key is visible: O leaves through Q's
// slot, and the slot changes hands the same way each time.
#pragma once

#include "fmha/epilogue.cuh"
#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
__device__ __forceinline__ void load_kv(const Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  ptx::prefetch_tensormap(p.k);
  ptx::prefetch_tensormap(p.v);
  RingPosition<C.stages> k_ring;
  RingPosition<C.stages> v_ring;
  const int group = p.heads_q / p.heads_kv;

  Schedule<C>(p).for_each([&](const TileIndex& tile) {
    const int head = tile.head / group;
    const int end_row = min((tile.m + 1) * C.tile_m, p.seqlen_q);
    const int blocks = key_blocks<C>(p, end_row);
    // A tile that sees no key loads rows past the end instead, which are zeros: 0 * V must not meet an infinity.
    const bool sees_none = visible_keys<C>(p, end_row - 1) <= 0;
    const int end = sees_none ? max(p.seqlen_k, 1) + C.tile_n : blocks * C.tile_n;
    // Step i loads K of the i-th block and V of the one before it.
#pragma unroll 1
    for (int i = 0; i <= blocks; ++i) {
      if (i < blocks) {
        const unsigned full = smem + kBarriers.k_full + 8 * k_ring.slot();
        ptx::mbarrier_wait_parity(smem + kBarriers.k_empty + 8 * k_ring.slot(), k_ring.parity() ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, kv_slot_bytes(C));
        ptx::tma_load_5d(smem + kLayout.k.offset + k_ring.slot() * kv_slot_bytes(C), p.k, full, 0,
                         end - (i + 1) * C.tile_n, 0, head, tile.batch);
        k_ring.advance();
      }
      if (i > 0) {
        const unsigned full = smem + kBarriers.v_full + 8 * v_ring.slot();
        ptx::mbarrier_wait_parity(smem + kBarriers.v_empty + 8 * v_ring.slot(), v_ring.parity() ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, kv_slot_bytes(C));
        ptx::tma_load_5d(smem + kLayout.v.offset + v_ring.slot() * kv_slot_bytes(C), p.v, full, 0, end - i * C.tile_n,
                         0, head, tile.batch);
        v_ring.advance();
      }
    }
  });
}

template <Config C>
__device__ __forceinline__ void load_q(const Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kWarpgroups = consumer_warpgroups(C);
  ptx::prefetch_tensormap(p.q);
  RingPosition<C.q_stages> ring;

  Schedule<C>(p).for_each([&](const TileIndex& tile) {
#pragma unroll 1
    for (int warpgroup = 0; warpgroup < kWarpgroups; ++warpgroup) {
      const int slot = ring.slot() * kWarpgroups + warpgroup;
      const unsigned full = smem + kBarriers.q_full + 8 * slot;
      ptx::mbarrier_wait_parity(smem + kBarriers.q_empty + 8 * slot, ring.parity() ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, q_slot_bytes(C));
      ptx::tma_load_5d(smem + kLayout.q.offset + slot * q_slot_bytes(C), p.q, full, 0,
                       tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup, 0, tile.head, tile.batch);
    }
    ring.advance();
  });
}

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp == kWarpOfKv) {
    if (ptx::elect_sync()) load_kv<C>(p, smem);
  } else if (warp == kWarpOfQ) {
    if (ptx::elect_sync()) load_q<C>(p, smem);
  } else if (warp == kWarpOfO) {
    if (ptx::elect_sync()) store_output<C>(p, smem);
  }
}

}  // namespace tessera::fmha
