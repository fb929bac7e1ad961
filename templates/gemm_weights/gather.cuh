// Rows of A by a list, of 8 bits, or in a long ring: warps copy those of each step, where otherwise TMA would; lanes
// the 256 bytes of a row, of 8 bits 128, in units of 16, to where the swizzle has them. What lies behind K comes as
// zeros, and so do rows that the list leaves out. More: gemm/gather.cuh.
//
// With wgmma two warps share the rows, and fence what they wrote, since the matrix instruction reads through another
// proxy. With mma.f16 the warp that loads activations copies them, and its copies arrive at the slot's barrier by
// themselves.
//
// A unit of 8-bit numbers lands on the first of the two that they take as bf16. The lane that copied it reads it back
// once it is there, and writes both: nobody else has to be waited for, and copies of later steps stay on their way.
#pragma once

#include "common/ring.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared_words.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// Two numbers of 8 bits, exactly.
template <Config C>
__device__ __forceinline__ unsigned widen_pair(unsigned pair) {
  const unsigned halves =
      C.facts.a_type == OperandType::e4m3 ? ptx::cvt_f16x2_e4m3x2(pair) : ptx::cvt_f16x2_e5m2x2(pair);
  return ptx::cvt_pack<DType::bf16>(ptx::f32_of_low_f16(halves), ptx::f32_of_high_f16(halves));
}

// Of a warp: its rows of the tile.
template <Config C>
struct ListedRows {
  static constexpr int kRows = C.tile_m / gather_warps(C);
  static constexpr int kLists = (kRows + 31) / 32, kOfList = kRows < 32 ? kRows : 32;
  static constexpr int kBytes = is_widened(C) ? 1 : 2;  // of a number in memory
  static constexpr int kUnit = 16, kUnitsOfRow = kWeightDepth * kBytes / kUnit, kUnitsOfPanel = kPanelBytes / kUnit;
  static constexpr int kAtOnce = 32 / kUnitsOfRow;  // rows that its lanes copy 16 bytes each of

  const Params& p;
  const int first;  // row of the tile
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int of_lane[kLists];  // the row of A that rows lane, lane + 32, ... from `first` on have; -1: zeros
  int count = 0;        // rows of the group
  const char* matrix = nullptr;

  __device__ __forceinline__ ListedRows(const Params& params, int first_row) : p(params), first(first_row) {}

  __device__ __forceinline__ void read(const Tile& tile) {
    count = tile.row_end - tile.row - first;
    matrix = static_cast<const char*>(p.a_pointer) + (is_gathered(C) ? 0 : tile.batch * p.a_stride_l * kBytes);
#pragma unroll
    for (int i = 0; i < kLists; ++i) {
      const int row = 32 * i + lane, of_matrix = tile.row + first + row;
      of_lane[i] = row < count ? of_matrix : -1;
      if constexpr (is_gathered(C)) {
        if (row < count) of_lane[i] = p.indices[static_cast<long long>(tile.batch) * p.m + of_matrix];
        if (of_lane[i] >= p.a_rows) of_lane[i] = -1;
      }
    }
  }
  // Where this lane's unit of a row lands: behind the panel's first row.
  __device__ __forceinline__ unsigned place(int of_tile) const {
    const int unit = lane % kUnitsOfRow * (2 / kBytes);  // the swizzle repeats after eight rows
    return unit / kUnitsOfPanel * panel_bytes(C) + of_tile * kPanelBytes + (unit % kUnitsOfPanel ^ of_tile % 8) * kUnit;
  }
  // The first `rows` of them, of a step, into the slot at `slot`.
  __device__ __forceinline__ void copy(unsigned slot, int step, int rows) const {
    const int of_lanes = lane / kUnitsOfRow;
    const long long at = static_cast<long long>(step) * kWeightDepth * kBytes + lane % kUnitsOfRow * kUnit;
    const int bytes = static_cast<int>(min(max(static_cast<long long>(p.k) * kBytes - at, 0ll), kUnit + 0ll));
    // Not unrolled: addresses of many copies would take more registers than the warp has.
#pragma unroll
    for (int list = 0; list < kLists; ++list) {
      const int end = min(min(kRows - list * 32, kOfList), rows - list * 32);
#pragma unroll 1
      for (int i = 0; i < end; i += kAtOnce) {
        const int listed = __shfl_sync(0xffffffff, of_lane[list], i + of_lanes);
        const bool is_read = listed >= 0 && bytes > 0;
        const char* const from = matrix + (is_read ? listed * p.lda * kBytes + at : 0);
        ptx::cp_async_16(slot + place(first + list * 32 + i + of_lanes), from, is_read ? bytes : 0);
      }
    }
  }
  // All of them, which lie in the slot as they came.
  __device__ __forceinline__ void widen(unsigned slot) const {
#pragma unroll 1
    for (int i = 0; i < kRows; i += kAtOnce) {
      const unsigned to = slot + place(first + i + lane / kUnitsOfRow);
      const ptx::Words4 v = ptx::ld_shared_v4(to);
      ptx::st_shared_v4(to, {widen_pair<C>(v.x & 0xffff), widen_pair<C>(v.x >> 16), widen_pair<C>(v.y & 0xffff),
                             widen_pair<C>(v.y >> 16)});
      ptx::st_shared_v4(to ^ kUnit, {widen_pair<C>(v.z & 0xffff), widen_pair<C>(v.z >> 16), widen_pair<C>(v.w & 0xffff),
                                     widen_pair<C>(v.w >> 16)});
    }
  }
};

// wgmma: one of two warps. 8 bits: with mma.f16 too, the one that loads.
template <Config C>
struct RowGatherer {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kAhead = C.stages > 5 ? 4 : C.stages > 2 ? C.stages - 2 : 1;  // steps on their way
  static constexpr int kFirstWarp = is_direct(C) ? 0 : kFirstGatherWarp;

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ListedRows<C> rows{p, (static_cast<int>(threadIdx.x) / 32 - kFirstWarp) * ListedRows<C>::kRows};
  common::RingPosition<C.stages> ring{0, 0};
  int pending = 0;                 // slots before the ring's whose copies nobody has spoken of
  unsigned long long written = 0;  // slots, a bit each: their first contents are the whole tile
  unsigned long long copied = 0;   // 8 bits: slots whose rows are to be widened

  __device__ __forceinline__ unsigned slot_of(int slot) const {
    return smem + smem_layout(C).a.offset + slot * a_slot_bytes(C);
  }
  // Of the oldest, whose copies are there.
  __device__ __forceinline__ void arrive() {
    const int before = ring.slot - pending, slot = before < 0 ? before + C.stages : before;
    if constexpr (is_widened(C)) {
      if ((copied >> slot & 1) != 0) rows.widen(slot_of(slot));
      copied &= ~(1ull << slot);
    }
    if constexpr (!is_direct(C)) ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(common::barrier_at<kBarriers.full>(smem, slot));
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
        if (step < schedule.k_end) {
          rows.copy(slot_of(ring.slot), step, (written >> ring.slot & 1) != 0 ? rows.count : ListedRows<C>::kRows);
          written |= 1ull << ring.slot;
          copied |= 1ull << ring.slot;
        }
        ptx::cp_async_commit_group();
        ring.advance();
        if (++pending > kAhead) {
          ptx::cp_async_wait_group<kAhead>();
          arrive();
        }
      }
      if (schedule.is_resident()) break;
    }
    drain();
  }
};

// mma.f16, rows without a list: all lanes of the warp that loads, 16 bytes each of two rows at a time.
template <Config C>
struct RowProducer {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kUnits = kWeightDepth * 2 / 16, kCopies = C.tile_m * kUnits / 32;

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  common::RingPosition<C.stages> ring{0, 0};
  const int unit = static_cast<int>(threadIdx.x) % kUnits, row = static_cast<int>(threadIdx.x) / kUnits;
  // The swizzle repeats after eight rows; the rows of a lane are two apart.
  const unsigned place =
      smem + smem_layout(C).a.offset + unit / 8 * panel_bytes(C) + row * kPanelBytes + (unit % 8 ^ row) * 16;

  __device__ __forceinline__ void run() {
    schedule.begin();
    const int last = schedule.k_begin + schedule.slots();
#pragma unroll 1
    for (int item = schedule.first(); last > schedule.k_begin && schedule.has(item); item += schedule.stride()) {
      const Tile tile = schedule.at(item);
      const int rows = tile.row_end - tile.row - row;  // a lane's row i is there if 2 i is less
      const char* const first = static_cast<const char*>(p.a_pointer) + tile.batch * p.a_stride_l * 2 +
                                (tile.row + row) * p.lda * 2 + unit * 16;
      const long long pitch = p.lda * 4;
#pragma unroll 1
      for (int step = schedule.k_begin; step < last; ++step) {
        const unsigned full = common::barrier_at<kBarriers.full>(smem, ring.slot);
        ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
        if (step < schedule.k_end) {
          const bool is_k = step * kWeightDepth + unit * 8 < p.k;
          const char* from = first + step * (kWeightDepth * 2);
          const unsigned to = place + ring.slot * a_slot_bytes(C);
#pragma unroll
          for (int i = 0; i < kCopies; ++i) {
            const bool is_read = is_k && 2 * i < rows;
            ptx::cp_async_16((to ^ (2 * i % 8 * 16)) + i * 2 * kPanelBytes, is_read ? from : first, is_read ? 16 : 0);
            from += pitch;
          }
          ptx::cp_async_mbarrier_arrive_noinc(full);
        } else {
          ptx::mbarrier_arrive(full);
        }
        ring.advance();
      }
      if (schedule.is_resident()) break;
    }
    ptx::cp_async_wait_group<0>();
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
