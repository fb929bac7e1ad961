// The producer: one thread loads A and B of each step along K into the ring, ahead of the consumers, across tiles too.
// What lies behind the matrix comes as zeros, and counts among a slot's bytes. With a K of 0 there is no A and no B,
// and nothing may be loaded through their maps, not even zeros.
#pragma once

#include "common/ring.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

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

template <Config C>
__device__ __forceinline__ void produce(const gemm::Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  const Barriers barriers = gemm_mma::barriers(C, smem);
  if (p.k == 0) return;
  const gemm::TileSchedule<walk(C)> schedule{p};
  common::RingPosition<C.stages> ring;
#pragma unroll 1
  for (int item = schedule.first(); item < schedule.items; item += schedule.stride()) {
    const gemm::TileIndex tile = schedule.at(item);
#pragma unroll 1
    for (int step = schedule.k_begin; step < schedule.k_end; ++step) {
      const unsigned full = barriers.full[ring.slot];
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, a_slot_bytes(C) + b_slot_bytes(C));
      load_operand<C, C.facts.a_layout, C.tile_m>(p.a, smem + kLayout.a.offset + ring.slot * a_slot_bytes(C), full,
                                                  tile.row, step * tile_k(C), tile.batch);
      load_operand<C, C.facts.b_layout, C.tile_n>(p.b, smem + kLayout.b.offset + ring.slot * b_slot_bytes(C), full,
                                                  tile.column, step * tile_k(C), tile.batch);
      ring.advance();
    }
  }
}

}  // namespace tessera::gemm_mma
