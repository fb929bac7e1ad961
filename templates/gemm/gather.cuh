// Rows of A by a list: two warps copy those of each step into the ring, where without a list TMA would.
//
// TMA has no gather on Hopper, and a copy for each row would take ten times as long as its products. So eight lanes
// copy the 128 bytes of a row, in units of 16 bytes, to where the swizzle has them; what lies behind K comes as zeros,
// and so do rows that the list leaves out. The matrix instructions read through another proxy: a warp fences what its
// lanes wrote, once it is there, and its first lane arrives for all. Copies of some steps more are on their way
// meanwhile.
#pragma once

#include "common/ring.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// For each lane the rows of A that rows lane, lane + 32, ... from `first` on have; -1: zeros.
template <int kRows>
struct ListedRows {
  int of_lane[kRows / 32];

  __device__ __forceinline__ ListedRows(const Params& p, const TileIndex& tile, int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int row = tile.row + first + 32 * i + lane;
      of_lane[i] = row < tile.row_end ? p.indices[static_cast<long long>(tile.batch) * p.m + row] : -1;
      if (of_lane[i] >= p.a_rows) of_lane[i] = -1;
    }
  }
};

template <Config C>
struct RowGatherer {
  static constexpr int kRows = C.tile_m / kGatherWarps;  // of a warp
  static constexpr int kAtOnce = 4;                      // rows that its lanes copy 16 bytes each of
  static constexpr int kAhead = C.stages > 5 ? 4 : C.stages > 2 ? C.stages - 2 : 1;  // steps on their way
  static constexpr int kUnit = 16;

  const Params& p;
  const unsigned smem;
  const Barriers barriers = barriers_at<C>(smem);
  TileSchedule<C, Walker::warp> schedule{p};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = (static_cast<int>(threadIdx.x) / 32 - kFirstGatherWarp) * kRows;  // row of the tile
  common::RingPosition<C.stages> ring{};
  int pending = 0;           // slots before the ring's whose copies nobody has spoken of
  int unwritten = C.stages;  // slots: their first contents are the whole tile

  // Of the oldest, whose copies are there.
  __device__ __forceinline__ void arrive() {
    const int slot = ring.slot - pending;
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barriers.full[slot < 0 ? slot + C.stages : slot]);
    --pending;
  }
  __device__ __forceinline__ void drain() {
    ptx::cp_async_wait_group<0>();
#pragma unroll 1
    while (pending > 0) arrive();
  }

  __device__ __forceinline__ void copy(const ListedRows<kRows>& rows, int step, int count) const {
    const int row = lane / 8, unit = lane % 8;
    const long long pitch = p.lda * element_bytes(C);
    const long long at = static_cast<long long>(step) * kStepBytes + unit * kUnit;
    const int bytes = static_cast<int>(min(max(static_cast<long long>(p.k) * element_bytes(C) - at, 0ll), 16ll));
    constexpr int kOffset = smem_layout(C).a.offset;
    const unsigned to = smem + kOffset + ring.slot * a_slot_bytes(C) + (first + row) * kStepBytes;
#pragma unroll
    for (int i = 0; i < kRows / kAtOnce; ++i) {
      if (i * kAtOnce >= count) break;
      const int listed = __shfl_sync(0xffffffff, rows.of_lane[i * kAtOnce / 32], i * kAtOnce % 32 + row);
      const bool is_read = listed >= 0 && bytes > 0;
      const char* const from = static_cast<const char*>(p.a_pointer) + (is_read ? listed * pitch + at : 0);
      const int in_pattern = i % 2 * kAtOnce + row;  // of the swizzle, which repeats after eight rows
      ptx::cp_async_16(to + i * kAtOnce * kStepBytes + (unit ^ in_pattern) * kUnit, from, is_read ? bytes : 0);
    }
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int item = schedule.first(); item < schedule.items_up_to(item); item += schedule.stride()) {
      const TileIndex tile = schedule.at(item);
      const ListedRows<kRows> rows(p, tile, first);
#pragma unroll 1
      for (int step = schedule.k_begin; step < schedule.k_end; ++step) {
        const unsigned empty = barriers.empty[ring.slot];
        // A consumer may wait for what is pending, before it gives the slot back.
        if (pending > 0 && !__all_sync(0xffffffff, ptx::mbarrier_test_wait_parity(empty, ring.parity ^ 1))) drain();
        ptx::mbarrier_wait_parity(empty, ring.parity ^ 1);
        copy(rows, step, unwritten > 0 ? kRows : tile.row_end - tile.row - first);
        ptx::cp_async_commit_group();
        if (unwritten > 0) --unwritten;
        ring.advance();
        if (++pending > kAhead) {
          ptx::cp_async_wait_group<kAhead>();
          arrive();
        }
      }
    }
    drain();
  }
};

}  // namespace tessera::gemm
