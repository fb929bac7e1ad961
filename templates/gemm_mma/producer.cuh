// The producer: one thread loads A and B of each step along K into the ring, ahead of the consumers, across tiles too;
// rows of A by a list and plain scales are copied by other warps (copies.cuh).
// What lies behind the matrix comes as zeros, and counts among a slot's bytes. With a K of 0 there is no A and no B,
// and nothing may be loaded through their maps, not even zeros.
#pragma once

#include "common/parts.cuh"
#include "common/ring.cuh"
#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
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
    for (int i = 0; i < kRows / panel_rows(C, kRows); ++i)
      ptx::tma_load_3d(slot + i * panel_bytes(C, kRows), map, full, row + i * panel_rows(C, kRows), k, batch);
  }
}

// `row_tile`: of the operand's scales.
template <Config C>
__device__ __forceinline__ void load_scales(const ptx::TensorMap& map, unsigned slot, unsigned full, int row_tile,
                                            int step) {
  ptx::tma_load_3d(slot, map, full, 0, step * scale_tiles(C), row_tile);
}

template <Config C>
__device__ __forceinline__ void produce(const gemm::ProductParams& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  const Barriers barriers = gemm_mma::barriers(C, smem);
  if (p.k == 0) return;
  gemm::Walk<walk(C)> walk{p};
  const Steps steps = steps_of_part<C>(p.k, walk.k_part());
  common::RingPosition<C.stages> ring;
#pragma unroll 1
  for (; walk.has_tile(); walk.advance()) {
    const gemm::WalkedTile tile = walk.tile();
#pragma unroll 1
    for (int step = steps.begin; step < steps.end; ++step) {
      const unsigned full = barriers.full[ring.slot];
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
      constexpr int kBytesOfA = is_gathered(C) ? 0 : a_copied_bytes(C);
      constexpr int kBytesOfScales = (copies_sfa(C) ? 0 : sfa_slot_bytes(C)) + (copies_sfb(C) ? 0 : sfb_slot_bytes(C));
      ptx::mbarrier_arrive_expect_tx(full, kBytesOfA + b_copied_bytes(C) + kBytesOfScales);
      if constexpr (!is_gathered(C))
        load_operand<C, a_layout(C), C.tile_m>(p.a, smem + kLayout.a.offset + ring.slot * a_slot_bytes(C), full,
                                               tile.a_row, step * step_coordinates(C), tile.a_matrix);
#pragma unroll
      for (int i = 0; i < products(C); ++i)
        load_operand<C, b_layout(C), C.tile_n>(i == 0 ? p.b : p.b2,
                                               smem + kLayout.b.offset + ring.slot * b_slot_bytes(C) + i * b_bytes(C),
                                               full, tile.b_row, step * step_coordinates(C), tile.b_matrix);
      if constexpr (is_scaled(C) && !copies_sfb(C)) {
        if constexpr (!copies_sfa(C))
          load_scales<C>(p.sfa, smem + kLayout.sfa.offset + ring.slot * sfa_slot_bytes(C), full, tile.a_scales, step);
#pragma unroll
        for (int i = 0; i < products(C); ++i)
          load_scales<C>(i == 0 ? p.sfb : p.sfb2,
                         smem + kLayout.sfb.offset + ring.slot * sfb_slot_bytes(C) + i * scale_slot_bytes(C, C.tile_n),
                         full, tile.b_scales, step);
      }
      ring.advance();
    }
  }
}

}  // namespace tessera::gemm_mma
