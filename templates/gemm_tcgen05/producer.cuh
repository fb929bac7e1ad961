// The producer: one thread of each CTA loads its part of A, of B and of the scales of each step along K into the ring.
//
// In a pair each CTA has its own 128 lanes and one half of the columns' operand; the barriers of the even CTA, whose
// warp issues the products, count the bytes of both. Scales of the columns are needed whole in both CTAs. Where K ends
// inside a tile of scales each CTA has to mend its own (multiplier.cuh), and the scales of a pair have a barrier in
// each CTA; everywhere else they count with the operands.
//
// Two pairs of a cluster share an operand: each CTA loads a half of its rows, and the copy goes to the CTA with the
// same part in the other pair too, where it counts at that pair's barrier. Scales that several CTAs want are loaded in
// parts likewise. So a slot is free when both pairs have read it: every commit tells all CTAs.
//
// With a K of 0 there is nothing to load, not even steps past the end: see ptx/clear_shared.cuh. All threads clear the
// slots before the roles begin, for the pair's issuer reads the other CTA's too.
#pragma once

#include "common/ring.cuh"
#include "gemm_tcgen05/params.cuh"
#include "gemm_tcgen05/schedule.cuh"
#include "ptx/clear_shared.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_pair.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// `barrier`: of the pair's even CTA, if there is a pair.
template <Config C, bool kIsOfLanes>
__device__ __forceinline__ void load(const Schedule<C>& schedule, const ptx::TensorMap& map, unsigned destination,
                                     unsigned barrier, int c0, int c1, int c2) {
  if constexpr (sharing_pairs(C, kIsOfLanes) == 2) {
    const auto ctas = static_cast<unsigned short>(5 << schedule.pair_rank());
    ptx::tma_load_3d_pair_multicast(destination, map, barrier, ctas, c0, c1, c2);
  } else if constexpr (pair_size(C) == 2) {
    ptx::tma_load_3d_pair(destination, map, barrier, c0, c1, c2);
  } else {
    ptx::tma_load_3d(destination, map, barrier, c0, c1, c2);
  }
}

// The CTA's rows of an operand and one step of K, or its part of them: one box, or a box for each panel of an MN-major
// one.
template <Config C, bool kIsOfLanes>
__device__ __forceinline__ void load_operand(const Schedule<C>& schedule, const ptx::TensorMap& map,
                                             unsigned destination, unsigned barrier, int k, int row, int matrix) {
  constexpr int kRows = loaded_rows(C, kIsOfLanes);
  const int part = sharing_pairs(C, kIsOfLanes) == 2 ? schedule.pair_index() * kRows : 0;
  destination += part * kStepBytes;
  row += part;
  if constexpr (is_mn_major(C, kIsOfLanes)) {
#pragma unroll
    for (int i = 0; i < kRows / panel_rows(C); ++i)
      load<C, kIsOfLanes>(schedule, map, destination + i * panel_bytes(C), barrier, row + i * panel_rows(C), k, matrix);
  } else {
    load<C, kIsOfLanes>(schedule, map, destination, barrier, k, row, matrix);
  }
}

// One operand's scales of a step: all of them, or the CTA's part for all that want them. `kIsOfPair`: `barrier` is the
// even CTA's.
template <Config C, bool kIsOfLanes, bool kIsOfPair>
__device__ __forceinline__ void load_scale_part(const Schedule<C>& schedule, const ptx::TensorMap& map,
                                                unsigned destination, unsigned barrier, int k_tile, int row_tile) {
  constexpr int kSharers = scale_sharers(C, kIsOfLanes);
  if constexpr (kSharers == 1) {
    if constexpr (kIsOfPair) {
      ptx::tma_load_3d_pair(destination, map, barrier, 0, k_tile, row_tile);
    } else {
      ptx::tma_load_3d(destination, map, barrier, 0, k_tile, row_tile);
    }
  } else {
    constexpr int kOfRows = scale_parts_of_rows(C, kIsOfLanes), kOfK = scale_parts_of_k(C, kIsOfLanes);
    constexpr TmaBox kBox = scale_box(C, kIsOfLanes);
    // All CTAs of the cluster, those of a pair, or those with one place in their pairs.
    const int part = kSharers == 4 ? schedule.rank : kIsOfLanes ? schedule.pair_index() : schedule.pair_rank();
    const int ctas = kSharers == 4 ? 15 : kIsOfLanes ? 5 << schedule.pair_rank() : 3 << schedule.even_rank();
    if (part >= kOfRows * kOfK) return;
    const int row = part % kOfRows * kBox.extents[2], k = part / kOfRows * kBox.extents[1];
    const unsigned to = destination + (row * scale_tiles(C) + k) * kTileBytes;
    if constexpr (kIsOfPair) {
      ptx::tma_load_3d_pair_multicast(to, map, barrier, static_cast<unsigned short>(ctas), 0, k_tile + k,
                                      row_tile + row);
    } else {
      ptx::tma_load_3d_multicast(to, map, barrier, static_cast<unsigned short>(ctas), 0, k_tile + k, row_tile + row);
    }
  }
}

template <Config C, bool kIsOfPair>
__device__ __forceinline__ void load_scales(const Schedule<C>& schedule, const Params& p, unsigned smem, int slot,
                                            unsigned barrier, int step, const Tile& tile) {
  constexpr SmemLayout kMap = smem_layout(C);
  const ptx::TensorMap& of_lanes = is_swapped(C) ? p.sfb : p.sfa;
  const auto of_columns = [&](int product) -> const ptx::TensorMap& {
    return is_swapped(C) ? p.sfa : product == 0 ? p.sfb : p.sfb2;
  };
  const int k_tile = step * scale_tiles(C);
  load_scale_part<C, true, kIsOfPair>(schedule, of_lanes,
                                      smem + kMap.lane_scales.offset + slot * scale_slot_bytes(C, 1), barrier, k_tile,
                                      scales_of<C>(tile, true));
#pragma unroll
  for (int i = 0; i < products(C); ++i)
    load_scale_part<C, false, kIsOfPair>(
        schedule, of_columns(i),
        smem + kMap.column_scales.offset + (slot * products(C) + i) * scale_slot_bytes(C, column_blocks(C)), barrier,
        k_tile, scales_of<C>(tile, false));
}

// All threads, where K is 0: operands and scales are side by side.
template <Config C>
__device__ __forceinline__ void clear_slots(unsigned smem) {
  constexpr SmemRegion kLast = smem_layout(C).column_scales;
  ptx::clear_shared(smem, kLast.offset + kLast.bytes, static_cast<int>(threadIdx.x), num_threads(C));
}

// Hands the cleared slots over, one a tile. An odd CTA gives the issuer no sign and must not follow the ring: it could
// miss a phase.
template <Config C>
__device__ __forceinline__ void produce_zeros(const Params& p, unsigned smem) {
  Schedule<C> schedule{p};
  if (schedule.pair_rank() != 0) return;
  const Barriers barriers = gemm_tcgen05::barriers(C, smem);
  common::RingPosition<C.stages> ring;
#pragma unroll 1
  for (; schedule.has_tile(); schedule.advance()) {
    ptx::mbarrier_wait_parity(barriers.empty[ring.slot], ring.parity ^ 1);
    ptx::mbarrier_arrive(barriers.full[ring.slot]);
    ring.advance();
  }
}

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  if (p.k == 0) {
    produce_zeros<C>(p, smem);
    return;
  }
  constexpr SmemLayout kMap = smem_layout(C);
  constexpr int kScaleBytes = scale_slot_bytes(C, 1) + products(C) * scale_slot_bytes(C, column_blocks(C));
  constexpr int kValueBytes = pair_size(C) * (operand_bytes(C, lane_type(C), kLanes) +
                                              products(C) * operand_bytes(C, column_type(C), column_rows(C)));
  const bool are_apart = are_scales_apart<C>(p.k);
  Schedule<C> schedule{p};
  const ptx::TensorMap& of_lanes = is_swapped(C) ? p.b : p.a;
  const auto of_columns = [&](int product) -> const ptx::TensorMap& {
    return is_swapped(C) ? p.a : product == 0 ? p.b : p.b2;
  };
  const int column_part = schedule.pair_rank() * column_rows(C);
  const Barriers barriers = gemm_tcgen05::barriers(C, smem);

  common::RingPosition<C.stages> ring;
#pragma unroll 1
  for (; schedule.has_tile(); schedule.advance()) {
    const Tile tile = schedule.tile();
#pragma unroll 1
    for (int step = schedule.k_begin; step < schedule.k_end; ++step) {
      const unsigned full = barriers.full[ring.slot];
      ptx::mbarrier_wait_parity(barriers.empty[ring.slot], ring.parity ^ 1);
      if (schedule.pair_rank() == 0)
        ptx::mbarrier_arrive_expect_tx(full, kValueBytes + (are_apart ? 0 : pair_size(C) * kScaleBytes));
      const unsigned of_pair = pair_size(C) == 2 ? ptx::mapa(full, schedule.even_rank()) : full;
      const int k = step * tile_k(C);
      load_operand<C, true>(schedule, of_lanes, smem + kMap.lanes.offset + ring.slot * kLanes * kStepBytes, of_pair, k,
                            row_of<C>(tile, true), matrix_of<C>(tile, true));
#pragma unroll
      for (int i = 0; i < products(C); ++i)
        load_operand<C, false>(schedule, of_columns(i),
                               smem + kMap.columns.offset + (ring.slot * products(C) + i) * column_rows(C) * kStepBytes,
                               of_pair, k, row_of<C>(tile, false) + column_part, matrix_of<C>(tile, false));
      if constexpr (has_scale_barriers(C)) {
        if (are_apart) {
          const unsigned scales = barriers.scales[ring.slot];
          ptx::mbarrier_arrive_expect_tx(scales, kScaleBytes);
          load_scales<C, false>(schedule, p, smem, ring.slot, scales, step, tile);
        }
      }
      if constexpr (is_scaled(C)) {
        if (!are_apart) load_scales<C, pair_size(C) == 2>(schedule, p, smem, ring.slot, of_pair, step, tile);
      }
      ring.advance();
    }
  }
}

}  // namespace tessera::gemm_tcgen05
