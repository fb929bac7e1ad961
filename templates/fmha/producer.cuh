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

// Where this CTA's columns begin, in panels.
template <Config C>
__device__ __forceinline__ int first_panel(int columns) {
  return cta_of_tile<C>() * (columns / span_elements(C));
}

// K and V of a tile. Step i loads K of the i-th block and V of the one before it. Not `all`: K of the first alone.
template <Config C>
__device__ __forceinline__ void load_kv(const Params& p, unsigned smem, const TileIndex& tile, const HeadIndex& at,
                                        bool all, RingPosition<C.stages>& k_ring) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  const int head = C.pack_gqa > 1 ? at.head : quotient(at.head, quotient(p.heads_q, p.heads_kv));
  const int end_row = min((tile.m + 1) * C.tile_m, rows_of_head<C>(p));
  const int blocks = key_blocks<C>(p, end_row);
  // A tile that sees no key loads rows past the end instead, which are zeros: 0 * V must not meet an infinity.
  const bool sees_none = visible_keys<C>(p, end_row - 1) <= 0;
  const int end = sees_none ? max(p.seqlen_k, 1) + C.tile_n : blocks * C.tile_n;
  RingPosition<C.stages> v_ring = k_ring;
#pragma unroll 1
  for (int i = 0; i <= (all ? blocks : 0); ++i) {
    if (i < blocks) {
      const unsigned full = smem + kBarriers.k_full + 8 * k_ring.slot();
      ptx::mbarrier_wait_parity(smem + kBarriers.k_empty + 8 * k_ring.slot(), k_ring.parity() ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, k_slot_bytes(C));
      ptx::tma_load_5d(smem + kLayout.k.offset + k_ring.slot() * k_slot_bytes(C), p.k, full, 0,
                       end - (i + 1) * C.tile_n, first_panel<C>(qk_columns(C)), head, at.batch);
      k_ring.advance();
    }
    if (i > 0) {
      const unsigned full = smem + kBarriers.v_full + 8 * v_ring.slot();
      ptx::mbarrier_wait_parity(smem + kBarriers.v_empty + 8 * v_ring.slot(), v_ring.parity() ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, v_slot_bytes(C));
      ptx::tma_load_5d(smem + kLayout.v.offset + v_ring.slot() * v_slot_bytes(C), p.v, full, 0, end - i * C.tile_n,
                       first_panel<C>(v_columns(C)), head, at.batch);
      v_ring.advance();
    }
  }
}

template <Config C>
__device__ __forceinline__ void load_q(const Params& p, unsigned smem, const TileIndex& tile, const HeadIndex& at,
                                       const RingPosition<C.q_stages>& q_ring) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kWarpgroups = consumer_warpgroups(C);
#pragma unroll 1
  for (int warpgroup = 0; warpgroup < kWarpgroups; ++warpgroup) {
    const int slot = q_ring.slot() * kWarpgroups + warpgroup;
    const unsigned full = smem + kBarriers.q_full + 8 * slot;
    ptx::mbarrier_wait_parity(smem + kBarriers.q_empty + 8 * slot, q_ring.parity() ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, q_slot_bytes(C));
    const unsigned to = smem + kLayout.q.offset + slot * q_slot_bytes(C);
    const int row = tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup;
    if constexpr (C.pack_gqa == 1) {
      ptx::tma_load_5d(to, p.q, full, 0, row, first_panel<C>(qk_columns(C)), at.head, at.batch);
    } else {
#pragma unroll 1
      for (int panel = 0; panel < qk_columns(C) / span_elements(C); ++panel) {
        ptx::tma_load_5d(to + panel * kRowsPerWarpgroup * swizzle_span_bytes(C.swizzle), p.q, full,
                         (first_panel<C>(qk_columns(C)) + panel) * span_elements(C), 0, row / C.pack_gqa, at.head,
                         at.batch);
      }
    }
  }
}

// One walk over the tiles for the three roles: the code that finds a tile exists once.
template <Config C>
__device__ __forceinline__ void produce(const Params& p, const Schedule<C>& schedule, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp > kWarpOfO || !ptx::elect_sync()) return;
  RingPosition<C.stages> k_ring;
  RingPosition<C.q_stages> q_ring;
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round)) {
    // The step that closes the last tile works on a tile beyond: one that is not there, so what comes are zeros.
    const bool is_real = schedule.has(round);
    if (!is_real && (C.q_stages == 1 || warp == kWarpOfO || round == 0)) break;
    const TileIndex tile = schedule.at(round);
    const HeadIndex at = head_of<C>(p, tile);
    if (warp == kWarpOfKv) {
      load_kv<C>(p, smem, tile, at, is_real, k_ring);
    } else if (warp == kWarpOfQ) {
      load_q<C>(p, smem, tile, at, q_ring);
    } else {
      store_output<C>(p, smem, tile, at, q_ring);
    }
    if (!is_real) break;
    q_ring.advance();
  }
  // Stores must have left before the CTA's shared memory goes.
  ptx::cp_async_bulk_wait_group<0>();
}

}  // namespace tessera::fmha
