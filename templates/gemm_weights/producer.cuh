// The producer: one thread loads activations and weights of each step along K into the ring.
//
// Boxes of activations behind the last row are left out, once every slot has been written: TMA fills rows with zeros
// more slowly than it loads others. What a slot holds there meets only rows of D that nobody stores. Weights of a tile
// that reaches behind the last block of rows are that block again, for the same reason.
//
// Weights that are read once leave the L2 first, so that they do not drive out the activations.
#pragma once

#include "common/ring.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "ptx/bulk.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kBoxRows = a_box_rows(C), kBoxBytes = kBoxRows * kPanelBytes;
  constexpr int kBlockBytes = weight_block_bytes(weights(C));
  const Schedule<C> schedule{p};
  const int blocks_n = (p.n - 1) / kWeightRows + 1;
  const int steps = Schedule<C>::steps_of(p.k);
  const unsigned long long policy = schedule.tiles_m == 1 ? ptx::kEvictFirst : ptx::kEvictNormal;
  common::RingPosition<C.stages> ring;
  int unwritten = C.stages;
#pragma unroll 1
  for (int item = schedule.first(); item < schedule.items; item += schedule.stride()) {
    const Tile tile = schedule.at(item);
    const int boxes = min((p.m - tile.row + kBoxRows - 1) / kBoxRows, C.tile_m / kBoxRows);
    const int first_block = tile.column / kWeightRows;
    const char* const matrix = static_cast<const char*>(p.b) +
                               static_cast<long long>(tile.batch) * blocks_n * steps * kBlockBytes;
#pragma unroll 1
    for (int step = schedule.k_begin; step < schedule.k_end; ++step) {
      const unsigned full = common::barrier_at<kBarriers.full>(smem, ring.slot);
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
      const int count = unwritten > 0 ? C.tile_m / kBoxRows : boxes;
      ptx::mbarrier_arrive_expect_tx(full, b_slot_bytes(C) + count * kPanels * kBoxBytes);
      const unsigned b = smem + kLayout.b.offset + ring.slot * b_slot_bytes(C);
#pragma unroll
      for (int i = 0; i < blocks_of_tile(C); ++i) {
        const int block = min(first_block + i, blocks_n - 1);
        ptx::bulk_load_with_policy(b + i * kBlockBytes,
                                   matrix + (static_cast<long long>(block) * steps + step) * kBlockBytes, kBlockBytes,
                                   full, policy);
      }
      const unsigned a = smem + kLayout.a.offset + ring.slot * a_slot_bytes(C);
#pragma unroll
      for (int i = 0; i < C.tile_m / kBoxRows; ++i) {
        if (i >= count) break;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          ptx::tma_load_3d(a + panel * panel_bytes(C) + i * kBoxBytes, p.a, full,
                           step * kWeightDepth + panel * kWeightHalf, tile.row + i * kBoxRows, tile.batch);
      }
      if (unwritten > 0) --unwritten;
      ring.advance();
    }
  }
}

}  // namespace tessera::gemm_weights
