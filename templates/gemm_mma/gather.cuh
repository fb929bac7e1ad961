// Rows of A by a list: two warps copy those of each step into the ring, where without a list TMA would: eight lanes the
// 128 bytes of a row, in units of 16, to where the swizzle has them; of values that are padded to bytes, 8 bytes that
// are the first half of a unit. Scales go with their rows, a cell of four blocks at a time: row r of the tile has cell
// r of the slot's tiles, wherever the named row has its own. What lies behind K comes as zeros, and so do rows that the
// list leaves out.
//
// ldmatrix reads through the proxy that cp.async writes through: no fence, and the copies of a lane arrive at the
// slot's barrier by themselves.
#pragma once

#include "common/ring.cuh"
#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
#include "gemm_mma/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

template <Config C>
struct RowGatherer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr int kRows = C.tile_m / kGatherWarps;  // of a warp
  static constexpr int kLists = (kRows + 31) / 32;
  static constexpr int kAtOnce = 4;  // rows that its lanes copy a unit each of
  static constexpr int kUnit = 16;
  static constexpr int kRead = is_padded(C, a_type(C)) ? kUnit / 2 : kUnit;  // bytes of a unit in memory

  const gemm::ProductParams& p;
  const unsigned smem;
  const int first;  // of the warp's rows in the tile
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int of_lane[kLists] = {};  // the row of A that rows lane, lane + 32, ... from `first` on have; -1: zeros

  __device__ __forceinline__ RowGatherer(const gemm::ProductParams& params, unsigned shared)
      : p(params), smem(shared), first((static_cast<int>(threadIdx.x) / 32 - kFirstGatherWarp) * kRows) {}

  __device__ __forceinline__ void read_list(const gemm::WalkedTile& tile) {
#pragma unroll
    for (int i = 0; i < kLists; ++i) {
      const int within = 32 * i + lane, row = tile.a_row + first + within;
      of_lane[i] =
          within < kRows && row < tile.row_end ? p.indices[static_cast<long long>(tile.a_matrix) * p.m + row] : -1;
      if (of_lane[i] >= p.a_rows) of_lane[i] = -1;
    }
  }

  __device__ __forceinline__ void copy_values(int slot, int step) const {
    const int of_lanes = lane / 8, unit = lane % 8;
    const long long at = static_cast<long long>(step) * (8 * kRead) + unit * kRead;
    const long long row_bytes = (static_cast<long long>(p.k) * operand_bits(a_type(C)) + 7) / 8;
    const int bytes = static_cast<int>(min(max(row_bytes - at, 0ll), static_cast<long long>(kRead)));
    const long long pitch = p.lda * operand_bits(a_type(C)) / 8;
    const unsigned to = smem + kLayout.a.offset + slot * a_slot_bytes(C);
    // Not unrolled further: addresses of many copies would take more registers than the warp has.
#pragma unroll
    for (int list = 0; list < kLists; ++list) {
      constexpr int kOfList = kRows < 32 ? kRows : 32;
#pragma unroll 1
      for (int i = 0; i < kOfList; i += kAtOnce) {
        const int listed = __shfl_sync(0xffffffff, of_lane[list], i + of_lanes);
        const bool is_read = listed >= 0 && bytes > 0;
        const char* const from = static_cast<const char*>(p.a_pointer) + (is_read ? listed * pitch + at : 0);
        const int row = first + list * 32 + i + of_lanes;  // the swizzle repeats after eight
        const unsigned place = to + row * kStepBytes + (unit ^ row % 8) * kUnit;
        if constexpr (kRead == kUnit) {
          ptx::cp_async_16(place, from, is_read ? bytes : 0);
        } else {
          ptx::cp_async_8(place, from, is_read ? bytes : 0);
        }
      }
    }
  }

  __device__ __forceinline__ void copy_scales(int slot, int step) const {
    const int tiles_of_k = (p.k - 1) / (scale_block(C) * kTileBlocks) + 1;
    const unsigned to = smem + kLayout.sfa.offset + slot * sfa_slot_bytes(C);
#pragma unroll
    for (int list = 0; list < kLists; ++list) {
      const int within = 32 * list + lane, row = first + within, listed = of_lane[list];
      if (within >= kRows) continue;
#pragma unroll
      for (int i = 0; i < scale_tiles(C); ++i) {
        const int tile = step * scale_tiles(C) + i;
        const bool is_read = listed >= 0 && tile < tiles_of_k;
        const long long at = (static_cast<long long>(listed / kTileRows) * tiles_of_k + tile) * kTileBytes +
                             scale_offset_in_tile(listed % kTileRows, 0);
        const char* const from = static_cast<const char*>(p.sfa_pointer) + (is_read ? at : 0);
        const unsigned place =
            to + (row / kTileRows * scale_tiles(C) + i) * kTileBytes + scale_offset_in_tile(row % kTileRows, 0);
        ptx::cp_async_4(place, from, is_read);
      }
    }
  }

  __device__ __forceinline__ void run() {
    const Barriers barriers = gemm_mma::barriers(C, smem);
    if (p.k == 0) return;
    gemm::Walk<walk(C)> walk{p};
    const Steps steps = steps_of_part<C>(p.k, walk.k_part());
    common::RingPosition<C.stages> ring;
#pragma unroll 1
    for (; walk.has_tile(); walk.advance()) {
      read_list(walk.tile());
#pragma unroll 1
      for (int step = steps.begin; step < steps.end; ++step) {
        const unsigned full = barriers.full[ring.slot];
        ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
        copy_values(ring.slot, step);
        if constexpr (is_scaled(C)) copy_scales(ring.slot, step);
        ptx::cp_async_mbarrier_arrive_noinc(full);
        ring.advance();
      }
    }
    ptx::cp_async_wait_all();
  }
};

}  // namespace tessera::gemm_mma
