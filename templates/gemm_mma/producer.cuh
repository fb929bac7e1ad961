// The producer: one thread loads A and B of each step along K into the ring, ahead of the consumers, across tiles too.
// What lies behind the matrix comes as zeros, and counts among a slot's bytes. With a K of 0 there is no A and no B,
// and nothing may be loaded through their maps, not even zeros.
#pragma once

#include "common/parts.cuh"
#include "common/ring.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

template <Config C>
__device__ __forceinline__ int steps_of(int k) {
  return k / tile_k(C) + (k % tile_k(C) != 0 ? 1 : 0);
}

// The steps of this CTA: all, or its part, which may have none.
struct Steps {
  int begin, end;
};
template <Config C>
__device__ __forceinline__ Steps steps_of_part(int k, int part) {
  const int steps = steps_of<C>(k);
  return {common::begin_of_part<C.split_k>(steps, part), common::begin_of_part<C.split_k>(steps, part + 1)};
}

// `row`: of the operand, where the tile begins.
template <Config C, Layout kLayout, int kRows>
__device__ __forceinline__ void load_operand(const ptx::TensorMap& map, unsigned slot, unsigned full, int row, int k,
                                             int batch) {
  if constexpr (kLayout == Layout::k_major) {
    ptx::tma_load_3d(slot, map, full, k, row, batch);
  } else {
#pragma unroll
    for (int i = 0; i < kRows / panel_rows(C); ++i)
      ptx::tma_load_3d(slot + i * panel_bytes(C), map, full, row + i * panel_rows(C), k, batch);
  }
}

// `row`: of the operand, of `rows` in all, where the tile begins.
template <Config C>
__device__ __forceinline__ void load_scales(const ptx::TensorMap& map, unsigned slot, unsigned full, int row, int rows,
                                            int step, int batch) {
  ptx::tma_load_3d(slot, map, full, 0, step * scale_tiles(C), batch * ((rows - 1) / kTileRows + 1) + row / kTileRows);
}

template <Config C>
__device__ __forceinline__ void produce(const gemm::Params& p, const ptx::TensorMap& sfa, const ptx::TensorMap& sfb,
                                        unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  const Barriers barriers = gemm_mma::barriers(C, smem);
  if (p.k == 0) return;
  const gemm::TileSchedule<walk(C)> schedule{p};
  const Steps steps = steps_of_part<C>(p.k, schedule.place.k);
  common::RingPosition<C.stages> ring;
#pragma unroll 1
  for (int item = schedule.first(); item < schedule.items; item += schedule.stride()) {
    const gemm::TileIndex tile = schedule.at(item);
#pragma unroll 1
    for (int step = steps.begin; step < steps.end; ++step) {
      const unsigned full = barriers.full[ring.slot];
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(
          full, a_slot_bytes(C) + b_slot_bytes(C) + scale_slot_bytes(C, C.tile_m) + scale_slot_bytes(C, C.tile_n));
      load_operand<C, a_layout(C), C.tile_m>(p.a, smem + kLayout.a.offset + ring.slot * a_slot_bytes(C), full, tile.row,
                                             step * tile_k(C), tile.batch);
      load_operand<C, b_layout(C), C.tile_n>(p.b, smem + kLayout.b.offset + ring.slot * b_slot_bytes(C), full,
                                             tile.column, step * tile_k(C), tile.batch);
      if constexpr (is_scaled(C)) {
        load_scales<C>(sfa, smem + kLayout.sfa.offset + ring.slot * scale_slot_bytes(C, C.tile_m), full, tile.row, p.m,
                       step, tile.batch);
        load_scales<C>(sfb, smem + kLayout.sfb.offset + ring.slot * scale_slot_bytes(C, C.tile_n), full, tile.column,
                       p.n, step, tile.batch);
      }
      ring.advance();
    }
  }
}

}  // namespace tessera::gemm_mma
