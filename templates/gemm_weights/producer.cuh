// The producer: one thread loads activations and weights of each step along K into the ring.
//
// Boxes of activations behind the last row are left out, once every slot has been written: TMA fills rows with zeros
// more slowly than it loads others. What a slot holds there meets only rows of D that nobody stores. Weights of a tile
// that reaches behind the last block of rows are that block again, for the same reason.
//
// Weights that are read once leave the L2 first, so that they do not drive out the activations.
//
// The first lap of the ring is on its way before the CTA has met: nobody else's memory is written.
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
struct Producer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kBoxRows = a_box_rows(C), kBoxBytes = kBoxRows * kPanelBytes;
  static constexpr int kBlockBytes = weight_block_bytes(weights(C));
  static constexpr bool kLeavesTiles = tiles_bytes(C) > 0;

  const Params& p;
  const unsigned smem;
  Schedule<C, has_own_rings(C)> schedule{p};
  const int blocks_n = (p.n - 1) / kWeightRows + 1;
  const int steps = Schedule<C>::steps_of(p.k);
  const int last = schedule.k_begin + schedule.slots();  // behind the tile's last slot
  common::RingPosition<C.stages> ring{0, 0};
  int item = schedule.first();
  int step = schedule.k_begin;
  unsigned long long written = 0;  // slots, a bit each
  // Of the item: worked out once, since a division takes as long as a few loads.
  Tile tile{};
  int boxes = 0;
  const char* blocks = nullptr;  // of the tile's first block, step 0

  // Precondition of load_slot(), once.
  __device__ __forceinline__ void begin_item() {
    if (schedule.slots() == 0 || !schedule.has(item)) item = schedule.end();
    if (item >= schedule.end()) return;
    tile = schedule.at(item);
    boxes = min((tile.row_end - tile.row + kBoxRows - 1) / kBoxRows, C.tile_m / kBoxRows);
    blocks = static_cast<const char*>(p.b) +
             (static_cast<long long>(tile.b_batch) * blocks_n + tile.column / kWeightRows) * steps * kBlockBytes;
    step = schedule.k_begin;
  }

  // The next slot, unless nothing is left.
  __device__ __forceinline__ bool load_slot() {
    if (item >= schedule.end()) return false;
    const unsigned full = common::barrier_at<kBarriers.full>(smem, ring.slot);
    ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
    if (step < schedule.k_end) {
      load(full);
    } else {
      ptx::mbarrier_arrive(full);
    }
    ring.advance();
    if (++step == last) {
      item = schedule.is_resident() ? schedule.end() : item + schedule.stride();
      begin_item();
    }
    return true;
  }

  // Few rows: the ring has activations alone, in boxes of a whole tile's rows. Of groups all lanes walk; one loads.
  // Nothing is kept from step to step but where they are: a step's loads take this thread about as long as warps
  // multiply it.
  __device__ __forceinline__ void load_activations(bool is_loading) {
    if (schedule.slots() == 0) return;
    if (!is_grouped(C) && !is_loading) return;  // else the lanes that do not load may walk first
    bool has_tile = schedule.has(item);
    if (kLeavesTiles && !has_tile && is_loading) leave_no_tile();
#pragma unroll 1
    while (has_tile) {
      tile = schedule.at(item);
      const bool is_first = item == schedule.first();
      item += schedule.stride();
      has_tile = schedule.has(item);
      tile.is_last = !has_tile;
      if (!is_loading) continue;
#pragma unroll 1
      for (step = schedule.k_begin; step < last; ++step) {
        const unsigned full = common::barrier_at<kBarriers.full>(smem, ring.slot);
        if constexpr (begins_slowly(C)) {
          if (step == schedule.k_begin + k_groups(C) && is_first)
            ptx::mbarrier_wait_parity(common::barrier_at<kBarriers.full>(smem, 0), 0);
        }
        ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
        if constexpr (kLeavesTiles) schedule.leave_tile(smem + kLayout.tiles.offset + ring.slot * kTileBytes, tile);
        if (step < schedule.k_end) {
          const unsigned a = smem + kLayout.a.offset + ring.slot * a_slot_bytes(C);
          ptx::mbarrier_arrive_expect_tx(full, a_slot_bytes(C));
#pragma unroll
          for (int panel = 0; panel < step_blocks(C) * kPanels; ++panel)
            ptx::tma_load_3d(a + panel * panel_bytes(C), p.a, full, step * step_depth(C) + panel * kWeightHalf,
                             tile.row, tile.batch);
        } else {
          ptx::mbarrier_arrive(full);
        }
        ring.advance();
      }
      if (schedule.is_resident()) return;
    }
  }
  __device__ __forceinline__ void leave_no_tile() const {
#pragma unroll 1
    for (int slot = 0; slot < k_groups(C); ++slot) {
      schedule.leave_none(smem + kLayout.tiles.offset + slot * kTileBytes);
      ptx::mbarrier_arrive(common::barrier_at<kBarriers.full>(smem, slot));
    }
  }

  __device__ __forceinline__ void load_weights(unsigned full) {
    const unsigned b = smem + kLayout.b.offset + ring.slot * b_slot_bytes(C);
    const int blocks_left = blocks_n - 1 - tile.column / kWeightRows;
    const unsigned long long policy = schedule.reads_weights_once() ? ptx::kEvictFirst : ptx::kEvictNormal;
#pragma unroll
    for (int i = 0; i < blocks_of_tile(C); ++i) {
      const long long at = static_cast<long long>(min(i, blocks_left)) * steps + step;
      ptx::bulk_load_with_policy(b + i * kBlockBytes, blocks + at * kBlockBytes, kBlockBytes, full, policy);
    }
  }
  __device__ __forceinline__ void load(unsigned full) {
    const int count = (written >> ring.slot & 1) != 0 ? boxes : C.tile_m / kBoxRows;
    written |= 1ull << ring.slot;
    ptx::mbarrier_arrive_expect_tx(full, b_slot_bytes(C) + (copies_rows(C) ? 0 : count * kPanels * kBoxBytes));
    if constexpr (!is_direct(C)) load_weights(full);
    if constexpr (copies_rows(C)) return;
    const unsigned a = smem + kLayout.a.offset + ring.slot * a_slot_bytes(C);
#pragma unroll
    for (int i = 0; i < C.tile_m / kBoxRows; ++i) {
      if (i >= count) break;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        ptx::tma_load_3d(a + panel * panel_bytes(C) + i * kBoxBytes, p.a, full,
                         step * kWeightDepth + panel * kWeightHalf, tile.row + i * kBoxRows, tile.batch);
    }
  }
};

}  // namespace tessera::gemm_weights
