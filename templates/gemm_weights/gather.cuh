// Rows of A by a list: warps copy those of each step into the ring, where without a list TMA would; sixteen lanes the
// 256 bytes of a row, in units of 16, to where the swizzle has them. What lies behind K comes as zeros, and so do rows
// that the list leaves out. More: gemm/gather.cuh.
//
// With wgmma two warps share the rows, and fence what they wrote, since the matrix instruction reads through another
// proxy. With mma.f16 the warp that loads activations copies them, and its copies arrive at the slot's barrier by
// themselves.
#pragma once

#include "common/ring.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// Of a warp: its rows of the tile.
template <Config C>
struct ListedRows {
  static constexpr int kRows = C.tile_m / gather_warps(C);
  static constexpr int kLists = (kRows + 31) / 32;
  static constexpr int kUnit = 16, kUnitsOfRow = kWeightDepth * 2 / kUnit, kUnitsOfPanel = kPanelBytes / kUnit;
  static constexpr int kAtOnce = 32 / kUnitsOfRow;  // rows that its lanes copy 16 bytes each of

  const Params& p;
  const int first;      // row of the tile
  int of_lane[kLists];  // the row of A that rows lane, lane + 32, ... from `first` on have; -1: zeros
  int count = 0;        // rows of the group

  __device__ __forceinline__ ListedRows(const Params& params, int first_row) : p(params), first(first_row) {}

  __device__ __forceinline__ void read(const Tile& tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    count = tile.row_end - tile.row - first;
#pragma unroll
    for (int i = 0; i < kLists; ++i) {
      const int row = 32 * i + lane;
      of_lane[i] = row < count ? p.indices[static_cast<long long>(tile.batch) * p.m + tile.row + first + row] : -1;
      if (of_lane[i] >= p.a_rows) of_lane[i] = -1;
    }
  }
  // The first `rows` of them, of a step, into the slot at `slot`.
  __device__ __forceinline__ void copy(unsigned slot, int step, int rows) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, in_pair = lane / kUnitsOfRow, unit = lane % kUnitsOfRow;
    const long long at = static_cast<long long>(step) * kWeightDepth * 2 + unit * kUnit;
    const int bytes = static_cast<int>(min(max(p.k * 2ll - at, 0ll), static_cast<long long>(kUnit)));
    const unsigned to = slot + unit / kUnitsOfPanel * panel_bytes(C);
    // Not unrolled: addresses of many copies would take more registers than the warp has.
#pragma unroll
    for (int list = 0; list < kLists; ++list) {
      constexpr int kOfList = kRows < 32 ? kRows : 32;
      const int end = min(min(kRows - list * 32, kOfList), rows - list * 32);
#pragma unroll 1
      for (int i = 0; i < end; i += kAtOnce) {
        const int listed = __shfl_sync(0xffffffff, of_lane[list], i + in_pair);
        const bool is_read = listed >= 0 && bytes > 0;
        const char* const from = static_cast<const char*>(p.a_pointer) + (is_read ? listed * p.lda * 2 + at : 0);
        const int of_tile = first + list * 32 + i + in_pair;  // the swizzle repeats after eight
        ptx::cp_async_16(to + of_tile * kPanelBytes + (unit % kUnitsOfPanel ^ of_tile % 8) * kUnit, from,
                         is_read ? bytes : 0);
      }
    }
  }
};

// wgmma: one of two warps.
template <Config C>
struct RowGatherer {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kAhead = C.stages > 5 ? 4 : C.stages > 2 ? C.stages - 2 : 1;  // steps on their way

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ListedRows<C> rows{p, (static_cast<int>(threadIdx.x) / 32 - kFirstGatherWarp) * ListedRows<C>::kRows};
  common::RingPosition<C.stages> ring{0, 0};
  int pending = 0;       // slots before the ring's whose copies nobody has spoken of
  unsigned written = 0;  // slots, a bit each: their first contents are the whole tile

  // Of the oldest, whose copies are there.
  __device__ __forceinline__ void arrive() {
    const int slot = ring.slot - pending;
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(common::barrier_at<kBarriers.full>(smem, slot < 0 ? slot + C.stages : slot));
    --pending;
  }
  __device__ __forceinline__ void drain() {
    ptx::cp_async_wait_group<0>();
#pragma unroll 1
    while (pending > 0) arrive();
  }

  __device__ __forceinline__ void run() {
    schedule.begin();
    const int last = schedule.k_begin + schedule.slots();
#pragma unroll 1
    for (int item = schedule.first(); last > schedule.k_begin && schedule.has(item); item += schedule.stride()) {
      rows.read(schedule.at(item));
#pragma unroll 1
      for (int step = schedule.k_begin; step < last; ++step) {
        const unsigned empty = common::empty_behind<C.stages>(common::barrier_at<kBarriers.full>(smem, ring.slot));
        // A consumer may wait for what is pending, before it gives the slot back.
        if (pending > 0 && !__all_sync(0xffffffff, ptx::mbarrier_test_wait_parity(empty, ring.parity ^ 1))) drain();
        ptx::mbarrier_wait_parity(empty, ring.parity ^ 1);
        // Steps behind the part's last are multiplied by nobody.
        if (step < schedule.k_end)
          rows.copy(smem + smem_layout(C).a.offset + ring.slot * a_slot_bytes(C), step,
                    (written >> ring.slot & 1) != 0 ? rows.count : ListedRows<C>::kRows);
        if (step < schedule.k_end) written |= 1u << ring.slot;
        ptx::cp_async_commit_group();
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

// mma.f16: all lanes of the warp that loads.
template <Config C>
struct GatherProducer {
  static constexpr Barriers kBarriers = barriers(C);

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  ListedRows<C> rows{p, 0};
  common::RingPosition<C.stages> ring{0, 0};

  __device__ __forceinline__ void run() {
    schedule.begin();
    const int last = schedule.k_begin + schedule.slots();
#pragma unroll 1
    for (int item = schedule.first(); last > schedule.k_begin && schedule.has(item); item += schedule.stride()) {
      rows.read(schedule.at(item));
#pragma unroll 1
      for (int step = schedule.k_begin; step < last; ++step) {
        const unsigned full = common::barrier_at<kBarriers.full>(smem, ring.slot);
        ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
        if (step < schedule.k_end) {
          rows.copy(smem + smem_layout(C).a.offset + ring.slot * a_slot_bytes(C), step, ListedRows<C>::kRows);
          ptx::cp_async_mbarrier_arrive_noinc(full);
        } else {
          ptx::mbarrier_arrive(full);
        }
        ring.advance();
      }
    }
    ptx::cp_async_wait_group<0>();
  }
};

}  // namespace tessera::gemm_weights
