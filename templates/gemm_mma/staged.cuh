// D through shared memory: a warp writes 16 rows of its columns as the map's box has them, and one of its lanes stores
// them by TMA. A warp has room for one to four such blocks, in turn.
//
// That room is a part of the ring's slot that the tile's last products were read from. Its consumers give that slot
// back when TMA has read what they left there, and not, as others, when they have fetched its last fragments; so loads
// ahead have a slot less while a tile is stored. With a K of 0 there are no loads, and any slot is free.
//
// Where D's rows do not lie multiples of 16 bytes apart, or do not end there, the warp's lanes store what it staged, by
// elements: neighbours of a row at a time, which registers do not have.
#pragma once

#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
#include "ptx/fence.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

// Of byte `at` of row `row` of a block: panels of d_span() bytes lie one behind the other.
template <Config C>
__device__ __forceinline__ unsigned staged_address(unsigned block, int row, int at) {
  constexpr int kSpan = d_span(C);
  const int swizzled = row * kSpan / 128 % (kSpan / 16) * 16;
  return block + at / kSpan * (kBlock * kSpan) + row * kSpan + (at % kSpan ^ swizzled);
}

// 16 columns from `column` on: of 8 rows, of 8 more, and both again 8 columns further.
template <Config C>
__device__ __forceinline__ void stage_16_bit(unsigned block, int column, const unsigned (&words)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ptx::stmatrix_x4(staged_address<C>(block, lane % 16, 2 * column + lane / 16 * 16), words[0], words[1], words[2],
                   words[3]);
}

// A thread's two neighbours of 32 bits, of 8 columns from `column` on.
template <Config C>
__device__ __forceinline__ void stage_pair(unsigned block, int half, int column, const unsigned (&words)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ptx::st_shared_v2(staged_address<C>(block, lane / 4 + 8 * half, 4 * column + lane % 4 * 8), words[0], words[1]);
}

// The blocks of a warp's part of a tile.
template <Config C>
struct StagedBlocks {
  static_assert(staged_blocks(C) >= 1);
  static constexpr int kElementBytes = dtype_bytes(C.facts.d_dtype);

  const gemm::ProductParams& p;
  const unsigned staging;
  const int columns = columns_of_d(C, p.n);
  const bool is_by_map = ((columns | p.ldd | p.d_stride_l) * kElementBytes) % 16 == 0;  // as the map wants D
  int next = 0;

  // Where the next block goes: what was there is on its way.
  __device__ __forceinline__ unsigned begin() {
    const unsigned to = staging + next * staged_bytes(C);
    if (++next == staged_blocks(C)) next = 0;
    if (threadIdx.x % 32 == 0) ptx::cp_async_bulk_wait_group_read<staged_blocks(C) - 1>();
    __syncwarp();
    return to;
  }

  __device__ __forceinline__ void end(unsigned block, const gemm::WalkedTile& tile, int row, int column) const {
    if (is_by_map) ptx::fence_proxy_async_shared();
    __syncwarp();
    if (!is_by_map) store_by_lanes(block, tile, row, column);
    if (threadIdx.x % 32 != 0) return;
    constexpr int kPanels = d_row_bytes(C) / d_span(C), kPanelColumns = d_span(C) / kElementBytes;
    if (is_by_map) {
#pragma unroll
      for (int i = 0; i < kPanels; ++i)
        if (row < p.m && column + i * kPanelColumns < columns)
          ptx::tma_store_3d(p.d, block + i * (kBlock * d_span(C)), column + i * kPanelColumns, row, tile.a_matrix);
    }
    // Blocks are counted by groups of stores, empty ones too.
    ptx::cp_async_bulk_commit_group();
  }

  // Neighbouring lanes have neighbours of a row. Rarely run: kept small.
  __device__ __forceinline__ void store_by_lanes(unsigned block, const gemm::WalkedTile& tile, int row,
                                                 int column) const {
    const int rows = min(kBlock, tile.row_end - row), lane = static_cast<int>(threadIdx.x) % 32;
    auto* const to = static_cast<unsigned char*>(p.d_pointer) +
                     (tile.a_matrix * p.d_stride_l + row * p.ldd + column) * kElementBytes;
    constexpr int kAcross = warp_columns(C);
#pragma unroll 1
    for (int i = lane; i < rows * kAcross; i += 32) {
      const int r = i / kAcross, c = i % kAcross;
      if (column + c >= columns) continue;
      const unsigned from = staged_address<C>(block, r, c * kElementBytes);
      if constexpr (kElementBytes == 2) {
        reinterpret_cast<unsigned short*>(to)[r * p.ldd + c] = ptx::ld_shared_u16(from);
      } else {
        reinterpret_cast<unsigned*>(to)[r * p.ldd + c] = ptx::ld_shared_u32(from);
      }
    }
  }
};

}  // namespace tessera::gemm_mma
