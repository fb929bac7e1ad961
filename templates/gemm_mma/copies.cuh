// What threads copy to the ring, where TMA does not: rows of A by a list, and plain scales.
//
// Two warps share the rows of a tile. Of A by a list eight lanes copy the 128 bytes of a row, in units of 16, to where
// the swizzle has them; of values that are padded to bytes, the 8 or 12 bytes that a unit begins with. Scales of a row
// are cells of four blocks: row r of the tile has cell r of the slot's tiles, wherever its scales are in memory. Those
// of rows by a list are the named rows'. What lies behind K comes as zeros, and so do rows that there are not.
//
// ldmatrix and loads read through the proxy that cp.async writes through: no fence, and the copies of a lane arrive at
// the slot's barrier by themselves. Plain scales whose cells do not begin at multiples of four bytes are read byte by
// byte, and stored: then a lane arrives when all that it has copied is there.
#pragma once

#include "common/ring.cuh"
#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
#include "gemm_mma/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

template <Config C>
struct Copier {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr int kRows = C.tile_m / kCopyWarps;  // of A, of a warp
  static constexpr int kLists = (kRows + 31) / 32;
  static constexpr int kAtOnce = 4;  // rows that its lanes copy a unit each of
  static constexpr int kUnit = 16;
  static constexpr int kRead = kUnit * operand_bits(a_type(C)) / element_bits(C);  // bytes of a unit in memory

  const gemm::ProductParams& p;
  const unsigned smem;
  const int warp = static_cast<int>(threadIdx.x) / 32 - kFirstCopyWarp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = warp * kRows;  // of the warp's rows in the tile
  int of_lane[kLists] = {};        // the row of A that rows lane, lane + 32, ... from `first` on have; -1: zeros
  const int blocks = is_scaled(C) && p.k > 0 ? (p.k - 1) / scale_block(C) + 1 : 0;  // of a row
  const bool is_by_bytes = is_plain_scaled(C) && !has_whole_cells();

  __device__ __forceinline__ Copier(const gemm::ProductParams& params, unsigned shared) : p(params), smem(shared) {}

  __device__ __forceinline__ bool has_whole_cells() const {
    const auto low = reinterpret_cast<unsigned long long>(p.sfa_pointer) |
                     reinterpret_cast<unsigned long long>(p.sfb_pointer) |
                     (products(C) == 2 ? reinterpret_cast<unsigned long long>(p.sfb2_pointer) : 0ull);
    return blocks % kTileBlocks == 0 && low % kTileBlocks == 0;
  }

  __device__ __forceinline__ void read_rows(const gemm::WalkedTile& tile) {
#pragma unroll
    for (int i = 0; i < kLists; ++i) {
      const int within = 32 * i + lane, row = tile.a_row + first + within;
      of_lane[i] = within < kRows && row < tile.row_end ? row : -1;
      if constexpr (is_gathered(C)) {
        if (of_lane[i] >= 0) of_lane[i] = p.indices[static_cast<long long>(tile.a_matrix) * p.m + row];
        if (of_lane[i] >= p.a_rows) of_lane[i] = -1;
      }
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
        } else if constexpr (kRead == 12) {  // whole blocks of 32 values: all of a unit, or none
#pragma unroll
          for (int b = 0; b < kRead; b += 4) ptx::cp_async_4(place + b, from + (is_read ? b : 0), is_read);
        } else {
          ptx::cp_async_8(place, from, is_read ? bytes : 0);
        }
      }
    }
  }

  // Row `row` of the tile, the one of `matrix`, of `rows` each, in memory; below 0: none.
  __device__ __forceinline__ void copy_cells(const void* scales, unsigned slot, int step, int row, long long matrix,
                                             int rows, int in_memory) const {
#pragma unroll
    for (int i = 0; i < scale_tiles(C); ++i) {
      const int tile = step * scale_tiles(C) + i, left = blocks - tile * kTileBlocks;
      const bool is_read = in_memory >= 0 && left > 0;
      const unsigned place =
          slot + (row / kTileRows * scale_tiles(C) + i) * kTileBytes + scale_offset_in_tile(row % kTileRows, 0);
      const auto* const bytes = static_cast<const unsigned char*>(scales);
      if constexpr (is_plain_scaled(C)) {
        const long long at = (matrix * rows + in_memory) * blocks + tile * kTileBlocks;
        if (!is_by_bytes) {
          ptx::cp_async_4(place, bytes + (is_read ? at : 0), is_read);
          continue;
        }
        unsigned cell = 0;
#pragma unroll
        for (int b = 0; b < kTileBlocks; ++b)
          if (is_read && b < left) cell |= static_cast<unsigned>(bytes[at + b]) << 8 * b;
        ptx::st_shared_u32(place, cell);
      } else {
        const int tiles_of_k = (blocks + kTileBlocks - 1) / kTileBlocks;
        const long long of_row = static_cast<long long>(in_memory / kTileRows) * tiles_of_k + tile;
        ptx::cp_async_4(place,
                        bytes + (is_read ? of_row * kTileBytes + scale_offset_in_tile(in_memory % kTileRows, 0) : 0),
                        is_read);
      }
    }
  }

  __device__ __forceinline__ void copy_scales_of_a(const gemm::WalkedTile& tile, int slot, int step) const {
    const unsigned to = smem + kLayout.sfa.offset + slot * sfa_slot_bytes(C);
#pragma unroll
    for (int list = 0; list < kLists; ++list) {
      const int within = 32 * list + lane;
      if (within < kRows)
        copy_cells(p.sfa_pointer, to, step, first + within, is_gathered(C) ? 0 : tile.a_matrix, p.m, of_lane[list]);
    }
  }

  __device__ __forceinline__ void copy_scales_of_b(const gemm::WalkedTile& tile, int slot, int step) const {
    constexpr int kRowsOfB = C.tile_n / kCopyWarps;
#pragma unroll
    for (int product = 0; product < products(C); ++product) {
      const unsigned to =
          smem + kLayout.sfb.offset + slot * sfb_slot_bytes(C) + product * scale_slot_bytes(C, C.tile_n);
#pragma unroll 1
      for (int within = lane; within < kRowsOfB; within += 32) {
        const int row = warp * kRowsOfB + within, in_memory = tile.b_row + row;
        copy_cells(product == 0 ? p.sfb_pointer : p.sfb2_pointer, to, step, row, tile.b_matrix, p.n,
                   in_memory < p.n ? in_memory : -1);
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
      const gemm::WalkedTile tile = walk.tile();
      read_rows(tile);
#pragma unroll 1
      for (int step = steps.begin; step < steps.end; ++step) {
        const unsigned full = barriers.full[ring.slot];
        ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
        if constexpr (is_gathered(C)) copy_values(ring.slot, step);
        if constexpr (copies_sfa(C)) copy_scales_of_a(tile, ring.slot, step);
        if constexpr (copies_sfb(C)) copy_scales_of_b(tile, ring.slot, step);
        if (!is_by_bytes) {
          ptx::cp_async_mbarrier_arrive_noinc(full);
        } else {
          ptx::cp_async_wait_all();
          ptx::mbarrier_arrive(full);
        }
        ring.advance();
      }
    }
    ptx::cp_async_wait_all();
  }
};

}  // namespace tessera::gemm_mma
