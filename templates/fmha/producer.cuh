// The producer warpgroup: its warps load K, V and Q and store O, each through one elected thread.
//
// Key blocks are taken from the last to the first, so that the blocks that need a mask come first. The rings of K and V
// know nothing of each other, so one code serves both: what differs is chosen by the warp. Every tile's Q is loaded,
// even if no key is visible: O leaves through Q's slot, and the slot changes hands the same way each time.
#pragma once

#include "fmha/copied_queries.cuh"
#include "fmha/epilogue.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/paged_load.cuh"
#include "fmha/params.cuh"
#include "fmha/passed_tiles.cuh"
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

// Where columns are padded: a slot of `bytes`, a box for each panel of `rows` rows.
template <Config C>
__device__ __forceinline__ void load_panels(unsigned to, const ptx::TensorMap& map, unsigned full, int bytes, int rows,
                                            int row, int head, int batch) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
#pragma unroll 1
  for (int column = 0, end = bytes / (rows * kSpan) * span_elements(C); column < end; column += span_elements(C)) {
    ptx::tma_load_5d(to, map, full, column, row, 0, head, batch);
    to += rows * kSpan;
  }
}

// A block of a V whose keys are contiguous: a box for each panel of them. A tile that sees no key has one that begins
// behind the last, which need not be where TMA may: at multiples of 16 bytes.
template <Config C>
__device__ __forceinline__ void load_k_major_v(unsigned to, const ptx::TensorMap& map, unsigned full, int key, int head,
                                               int batch) {
  constexpr int kStep = 16 / dtype_bytes(C.facts.dtype);
#pragma unroll 1
  for (int panel = 0; panel < C.tile_n / span_elements(C); ++panel) {
    ptx::tma_load_4d(to + panel * v_columns(C) * swizzle_span_bytes(C.swizzle), map, full,
                     (key + kStep - 1) / kStep * kStep + panel * span_elements(C), cta_of_tile<C>() * v_columns(C),
                     head, batch);
  }
}

// The key blocks of a tile, of K or of V. Of a tile that is not there: the first block of K, none of V.
template <Config C, class Walk>
__device__ __forceinline__ void load_kv(const Params& p, unsigned smem, const Walk& schedule, const TileIndex& tile,
                                        const HeadIndex& at, bool is_v, bool is_real, RingPosition<C.stages>& ring) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  const ptx::TensorMap& map = is_v ? p.v : p.k;
  const unsigned slots = smem + (is_v ? kLayout.v.offset : kLayout.k.offset);
  const BarrierRow all_full{smem + (is_v ? barrier_at<kBarriers.v_full>(0) : barrier_at<kBarriers.k_full>(0))};
  const BarrierRow all_empty{smem + (is_v ? barrier_at<kBarriers.v_empty>(0) : barrier_at<kBarriers.k_empty>(0))};
  const int slot_bytes = is_v ? v_slot_bytes(C) : k_slot_bytes(C);
  const int panel = is_v ? first_panel<C>(v_columns(C)) : first_panel<C>(qk_columns(C));
  const int head = C.pack_gqa > 1 ? at.head : quotient(at.head, quotient(p.heads_q, p.heads_kv));
  const LoadedKeys keys = loaded_keys_of<C>(p, schedule, tile);
  const int count = is_real ? keys.count : is_v ? 0 : 1;
#pragma unroll 1
  for (int i = 1; i <= count; ++i) {
    const unsigned full = all_full[ring.slot()];
    ptx::mbarrier_wait_parity(all_empty[ring.slot()], ring.parity() ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, slot_bytes);
    if (C.facts.v_layout == Layout::k_major && is_v) {
      load_k_major_v<C>(slots + ring.slot() * slot_bytes, map, full, keys.end - i * C.tile_n, head, at.batch);
    } else if constexpr (is_padded(C.facts)) {
      load_panels<C>(slots + ring.slot() * slot_bytes, map, full, slot_bytes, C.tile_n, keys.end - i * C.tile_n, head,
                     at.batch);
    } else {
      ptx::tma_load_5d(slots + ring.slot() * slot_bytes, map, full, 0, keys.end - i * C.tile_n, panel, head, at.batch);
    }
    ring.advance();
  }
}

template <Config C>
__device__ __forceinline__ void load_q(const Params& p, unsigned smem, const TileIndex& tile, const HeadIndex& at,
                                       const RingPosition<C.q_stages>& q_ring) {
  if constexpr (copies_q(C)) return;
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kWarpgroups = row_groups(C);
#pragma unroll 1
  for (int warpgroup = 0; warpgroup < kWarpgroups; ++warpgroup) {
    const int slot = q_ring.slot() * kWarpgroups + warpgroup;
    const unsigned full = barrier_at<kBarriers.q_full>(smem, slot);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.q_empty>(smem, slot), q_ring.parity() ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, q_slot_bytes(C));
    const unsigned to = smem + kLayout.q.offset + slot * q_slot_bytes(C);
    const int row = first_query_of<C>(p, tile, at) * padded_heads(C) + tile.m * C.tile_m + warpgroup * rows_of_box(C);
    if constexpr (!is_packed(C) && is_padded(C.facts)) {
      load_panels<C>(to, p.q, full, q_slot_bytes(C), rows_of_box(C), row, at.head, sequence_of_map<C>(at));
    } else if constexpr (!is_packed(C)) {
      ptx::tma_load_5d(to, p.q, full, 0, row, first_panel<C>(qk_columns(C)), at.head, sequence_of_map<C>(at));
    } else {
#pragma unroll 1
      for (int panel = 0; panel < qk_columns(C) / span_elements(C); ++panel) {
        ptx::tma_load_5d(to + panel * rows_of_box(C) * swizzle_span_bytes(C.swizzle), p.q, full,
                         (first_panel<C>(qk_columns(C)) + panel) * span_elements(C), head_of_box<C>(row),
                         row / padded_heads(C), at.head, sequence_of_map<C>(at));
      }
    }
  }
}

// The warp of Q where it tells the others of their tiles.
template <Config C>
__device__ __forceinline__ void load_and_pass(const Params& p, unsigned smem) {
  const Schedule<C> schedule{p};
  if (!ptx::elect_sync()) return;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    const bool is_real = schedule.has(round);
    if (!is_real && (!joins_tiles(C) || round == 0)) return pass_the_end<C>(smem, round);
    tile = schedule.at(round);
    pass_tile<C>(p, smem, tile, is_real, round);
    const auto tiles_before = static_cast<unsigned>(round);
    const RingPosition<C.q_stages> q_ring{
        static_cast<int>(2 * (tiles_before % C.q_stages) + tiles_before / C.q_stages % 2)};
    load_q<C>(p, smem, tile, head_of<C>(p, tile), q_ring);
    if (!is_real) return;
  }
}

// Those of these warps whose loads and stores one elected thread starts: one walk over the tiles for all, so that the
// code that finds a tile exists once.
template <Config C, class Walk>
__device__ __forceinline__ void produce_alone(const Params& p, const Walk& schedule, unsigned smem, int warp) {
  if (leaves_from_registers(C) && warp == kWarpOfO) return;
  if (!ptx::elect_sync()) return;
  RingPosition<C.stages> kv_ring;
  RingPosition<C.q_stages> q_ring;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    // The step that closes the last tile works on a tile beyond: one that is not there, so what comes are zeros.
    const bool is_real = schedule.has(round);
    if (!is_real && (!joins_tiles(C) || warp == kWarpOfO || round == 0)) break;
    tile = schedule.at(round);
    const HeadIndex at = head_of<C>(p, tile);
    wait_with_tile<C>(round);
    if (!passes_tiles(C) && warp == kWarpOfQ) {
      load_q<C>(p, smem, tile, at, q_ring);
    } else if (warp == kWarpOfO) {
      store_output<C>(p, smem, tile, at, q_ring);
    } else if constexpr (!has_placed_keys(C)) {
      load_kv<C>(p, smem, schedule, tile, at, warp == kWarpOfV, is_real, kv_ring);
    }
    if (!is_real) break;
    q_ring.advance();
  }
  // Stores must have left before the CTA's shared memory goes.
  ptx::cp_async_bulk_wait_group<0>();
}

template <Config C, class Walk>
__device__ __forceinline__ void produce(const Params& p, const Walk& schedule, unsigned smem,
                                        const attention::KnownBlock& known = {}) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if constexpr (loads_alike(C)) {
    if (warp == kWarpOfK || warp == kWarpOfV) return produce_keys<C, false, true>(p, schedule, smem, warp == kWarpOfV);
  } else if constexpr (has_placed_keys(C)) {
    if (warp == kWarpOfK) return produce_keys<C, false>(p, schedule, smem, false, known);
    if (warp == kWarpOfV) return produce_keys<C, true>(p, schedule, smem, true, known);
  }
  if constexpr (copies_q(C)) {
    if (warp == kWarpOfQ) return copy_queries<C>(p, schedule, smem);
  }
  // Else no warp is left for it.
  if constexpr (!has_placed_keys(C) || !leaves_from_registers(C) || !(passes_tiles(C) || copies_q(C)))
    produce_alone<C>(p, schedule, smem, warp);
}

}  // namespace tessera::fmha
