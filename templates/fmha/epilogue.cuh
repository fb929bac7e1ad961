// What becomes of a finished tile: row statistics go to global memory from the consumers; O goes through the tile's Q
// slot, where consumers stage it and one warp of the producers stores it by TMA, so that no consumer waits for the
// store.
#pragma once

#include "common/transpose_quad.cuh"
#include "fmha/by_slot.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/registers.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "fmha/staging.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Where the statistics of a row lie.
template <Config C>
__device__ __forceinline__ long long statistic_of(const Params& p, const TileIndex& tile, int row) {
  int head = tile.head * C.pack_gqa + row % padded_heads(C);
  int query = row / padded_heads(C);
  if constexpr (is_ragged(C.facts)) {
    const HeadIndex at = head_of<C>(p, tile);
    head = at.head * C.pack_gqa + row % C.pack_gqa;
    query += first_query_of<C>(p, tile, at);
  }
  return static_cast<long long>(head) * p.seqlen_q + query;
}

// A row's statistics: the reference maximum, the sum, LSE = maximum + ln(sum). The row is `own` of its head's, and the
// r-th of the thread's.
template <Config C>
__device__ __forceinline__ void store_statistic(const Params& p, const TileIndex& tile, const RowStatistics& rows,
                                                int r, int own) {
  const long long index = statistic_of<C>(p, tile, own);
  if constexpr (is_dealt(C)) {
    if (tile.split >= 0) {
      ptx::st_global_v2(p.partial_sums + 2 * part_row<C>(p, tile.split, own - tile.m * C.tile_m),
                        __float_as_uint(rows.reference[r]), __float_as_uint(rows.sum[r]));
      return;
    }
  } else if constexpr (is_split(C)) {
    ptx::st_global_v2(p.partial_sums + 2 * (tile.split * num_rows(p) + index), __float_as_uint(rows.reference[r]),
                      __float_as_uint(rows.sum[r]));
    return;
  }
  if (p.lse != nullptr) p.lse[index] = (rows.subtrahend(r) + ptx::lg2(rows.sum[r])) * kLn2;
  if constexpr (C.facts.output == Output::unnormalized) {
    p.row_max[index] = rows.reference[r] * kLn2;
    p.row_sum[index] = rows.sum[r];
  }
}

// One thread of four writes its rows' statistics. `row` is the thread's first.
template <Config C>
__device__ __forceinline__ void store_statistics(const Params& p, const TileIndex& tile, const RowStatistics& rows,
                                                 int row) {
  if (threadIdx.x % 4 != 0 || cta_of_tile<C>() != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = row + 8 * r;
    if (own >= rows_of_tile_head<C>(p, tile)) continue;
    if (padded_heads(C) != C.pack_gqa && own % padded_heads(C) >= C.pack_gqa) continue;
    store_statistic<C>(p, tile, rows, r, own);
  }
}

struct GlobalRow {
  char* to;
  __device__ __forceinline__ void operator()(int byte, const ptx::Vector4& words) const {
    ptx::st_global_v4(to + byte, words);
  }
  __device__ __forceinline__ void operator()(int byte, unsigned x, unsigned y) const {
    ptx::st_global_v2(to + byte, x, y);
  }
};

// A thread's part of a row, which begins at `to`: 16-bit or fp32.
template <Config C, bool kIsF32>
__device__ __forceinline__ void store_columns(char* to, const Accumulator<C>& output, int r) {
  if constexpr (has_fours(C) || has_eights(C)) {
    give_columns<C, kIsF32>(output, r, 0, o_columns(C) / (4 * kColumnsOfThread<C>), GlobalRow{to});
  } else {
    static_assert(kIsF32);  // 16-bit ones: store_rows()
#pragma unroll
    for (int i = 0; i < o_columns(C) / 8; ++i)
      ptx::st_global_v2(to + 32 * i, __float_as_uint(output[4 * i + 2 * r]),
                        __float_as_uint(output[4 * i + 2 * r + 1]));
  }
}

// Two columns of a thread's r-th row. Registers have no index: r may be a loop's.
template <Config C>
__device__ __forceinline__ unsigned packed_pair(const Accumulator<C>& output, int i, int r) {
  const float* const pair = output + 4 * i;
  const unsigned first = ptx::cvt_pack<C.facts.dtype>(pair[0], pair[1]);
  const unsigned second = ptx::cvt_pack<C.facts.dtype>(pair[2], pair[3]);
  return r == 0 ? first : second;
}

// A whole tile's O from registers, each row where it is one of the head's. 16-bit ones leave 16 bytes a lane: four
// lanes, which have two columns each of eight, exchange those of four such groups.
template <Config C>
__device__ __forceinline__ void store_rows(const Params& p, const Accumulator<C>& held, const TileIndex& tile,
                                           int row) {
  constexpr int kGroups = o_columns(C) / 8;
  constexpr bool kIsNarrow = C.facts.output == Output::normalized;
  const HeadIndex at = head_of<C>(p, tile);
  if constexpr (has_fours(C) && !uses_mma_sync(C)) {
    char* of_row[2] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = row + 8 * r;
      if (own >= rows_of_tile_head<C>(p, tile)) continue;
      of_row[r] = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), own) +
                  o_element_bytes(C.facts) * kColumnsOfThread<C> * (static_cast<int>(threadIdx.x) % 4);
    }
    if constexpr (kIsNarrow) {
      RegistersOf<C>::store_16_bit_rows(of_row);
    } else {
      RegistersOf<C>::store_f32_rows(of_row);
    }
    return;
  }
  if constexpr (has_fours(C) || has_eights(C)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = row + 8 * r;
      if (own >= rows_of_tile_head<C>(p, tile)) continue;
      const int column = kColumnsOfThread<C> * (static_cast<int>(threadIdx.x) % 4);
      char* const to = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), own) + o_element_bytes(C.facts) * column;
      store_columns<C, !kIsNarrow>(to, held, r);
    }
    return;
  }
  Accumulator<C> copy;
  const Accumulator<C>& output = values_of<C>(held, copy);
  const int lane = static_cast<int>(threadIdx.x) % 4;
  // By mma.sync, whose compiles are the longest, one copy of the code for both rows.
  constexpr int kCopies = owns_rows(C) ? 1 : 2;
#pragma unroll kCopies
  for (int r = 0; r < 2; ++r) {
    const int own = row + 8 * r;
    const bool is_there = own < rows_of_tile_head<C>(p, tile);
    char* const to = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), own) +
                     o_element_bytes(C.facts) * (cta_of_tile<C>() * v_columns(C));
    constexpr int kExchanged = kIsNarrow ? kGroups / 4 * 4 : 0;
#pragma unroll
    for (int i = 0; i < kExchanged; i += 4) {
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = packed_pair<C>(output, i + j, r);
      common::transpose_quad(words);
      if (is_there) ptx::st_global_v4(to + 16 * (i + lane), {words[0], words[1], words[2], words[3]});
    }
    if (!is_there) continue;
#pragma unroll
    for (int i = kExchanged; i < kGroups; ++i) {
      if constexpr (kIsNarrow) {
        ptx::st_global_u32(to + 16 * i + 4 * lane, packed_pair<C>(output, i, r));
      } else {
        const float low = r == 0 ? output[4 * i] : output[4 * i + 2];
        const float high = r == 0 ? output[4 * i + 1] : output[4 * i + 3];
        ptx::st_global_v2(to + 32 * i + 8 * lane, __float_as_uint(low), __float_as_uint(high));
      }
    }
  }
}

// Where a row of a part lies in the workspace.
template <Config C>
__device__ __forceinline__ long long part_index(const Params& p, const TileIndex& tile, int row) {
  if constexpr (is_dealt(C)) return part_row<C>(p, tile.split, row - tile.m * C.tile_m);
  const int head = tile.head * C.pack_gqa + row % C.pack_gqa;
  return tile.split * num_rows(p) + static_cast<long long>(head) * p.seqlen_q + row / C.pack_gqa;
}

// Split keys: a part's O goes from registers to the workspace. `row`: the thread's first.
template <Config C>
__device__ __forceinline__ void store_rows_of_part(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                                   int row) {
  if constexpr (is_dealt(C) && !leaves_by_slot<C>()) {
    if (tile.split < 0) {
      store_rows<C>(p, output, tile, row);
      return;
    }
  }
  const int column = cta_of_tile<C>() * v_columns(C) + kColumnsOfThread<C> * (static_cast<int>(threadIdx.x) % 4);
  [[maybe_unused]] char* of_row[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = row + 8 * r;
    if (own >= rows_of_tile_head<C>(p, tile)) continue;
    char* const to = reinterpret_cast<char*>(p.partial_o + part_index<C>(p, tile, own) * C.facts.head_dim_v + column);
    if constexpr (uses_mma_sync(C)) {
      store_columns<C, true>(to, output, r);
    } else {
      of_row[r] = to;
    }
  }
  if constexpr (!uses_mma_sync(C)) RegistersOf<C>::store_f32_rows(of_row);
}

template <Config C>
__device__ __forceinline__ void store_part(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                           int row, int warpgroup, const RingPosition<C.q_stages>& q, unsigned smem) {
  if constexpr (is_dealt(C) && leaves_by_slot<C>()) {
    if (tile.split < 0) return store_by_slot<C>(p, output, tile, warpgroup, q, smem);
  }
  const int index_of_slot = q.slot() * row_groups(C) + warpgroup;
  // With the slot goes the tile's message, which all lanes have read.
  if constexpr (passes_tiles(C) && !owns_rows(C)) __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<barriers(C).q_empty>(smem, index_of_slot));
  store_rows_of_part<C>(p, output, tile, row);
}

// Consumers' side. The Q slot is free once every warp of the warpgroup has passed the first barrier: their products
// with Q are done. Where O takes several passes, each waits until the one before has left: all of them but the last are
// phases of o_read.
template <Config C>
__device__ __forceinline__ void wait_for_pass(int pass, int warpgroup, const RingPosition<C.q_stages>& q,
                                              unsigned smem) {
  if (pass == 0) return;
  const unsigned tiles = (o_passes(C) - 1) % 2 == 0 ? 0 : tile_parity(q);  // phases of the tiles before
  ptx::mbarrier_wait_parity(barrier_at<barriers(C).o_read>(smem, warpgroup), tiles ^ ((pass - 1) % 2));
}

template <Config C>
__device__ __forceinline__ void stage_output(const Accumulator<C>& output, int warpgroup,
                                             const RingPosition<C.q_stages>& q, unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  const int index = q.slot() * row_groups(C) + warpgroup;
  const unsigned slot = smem + smem_layout(C).q.offset + index * q_slot_bytes(C);
#pragma unroll
  for (int pass = 0; pass < o_passes(C); ++pass) {
    wait_for_pass<C>(pass, warpgroup, q, smem);
    if constexpr (!owns_rows(C))
      if (pass == 0) meet_warpgroup(warpgroup);
    if constexpr (has_fours(C) || has_eights(C)) {
      stage_columns<C>(output, pass, slot);
    } else if constexpr (C.facts.output == Output::normalized) {
      stage_normalized<C>(output, slot);
    } else {
      stage_unnormalized<C>(output, pass, slot);
    }
    give_rows(barrier_at<kBarriers.o_full>(smem, index));
  }
}

// Ragged: whether all of a warpgroup's rows are rows of the head, so that a box may store them. Else the rows behind
// belong to the next sequence.
template <Config C>
__device__ __forceinline__ bool fills_box(const Params& p, const TileIndex& tile, int warpgroup) {
  if constexpr (!is_ragged(C.facts)) return true;
  return tile.m * C.tile_m + (warpgroup + 1) * kRowsPerWarpgroup <= rows_of_tile_head<C>(p, tile);
}

// Consumers' side for ragged sequences: rows that fill no box leave from the slot or from registers, and the storing
// thread only hands the slot back. `row`: the thread's first.
template <Config C>
__device__ __forceinline__ void hand_over_ragged(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                                 int row, int warpgroup, const RingPosition<C.q_stages>& q,
                                                 unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  const int index = q.slot() * row_groups(C) + warpgroup;
  if constexpr (leaves_by_slot<C>()) {
    const unsigned slot = stage_for_warp<C>(output, warpgroup, index, smem);
    if (!fills_box<C>(p, tile, warpgroup)) store_staged_rows<C>(p, tile, warpgroup, slot);
    return give_rows(barrier_at<kBarriers.o_full>(smem, index));
  }
  if (fills_box<C>(p, tile, warpgroup)) {
    stage_output<C>(output, warpgroup, q, smem);
    return;
  }
  store_rows<C>(p, output, tile, row);
#pragma unroll
  for (int pass = 0; pass < o_passes(C); ++pass) {
    wait_for_pass<C>(pass, warpgroup, q, smem);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.o_full>(smem, index));
  }
}

// The storing thread's side. A Q slot goes back to its loader when TMA has read the last of O.
template <Config C>
__device__ __forceinline__ void store_output(const Params& p, unsigned smem, const TileIndex& tile, const HeadIndex& at,
                                             const RingPosition<C.q_stages>& q) {
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kWarpgroups = row_groups(C);
  constexpr int kPanels = v_columns(C) / o_passes(C) / o_span_elements(C);
#pragma unroll 1  // unrolled, the addresses spill
  for (int i = 0; i < o_passes(C) * kWarpgroups; ++i) {
    // All of a group's passes first where a warp has two groups and more than two passes: it stages them in this order.
    constexpr bool kByGroups = o_passes(C) > 2;
    const int pass = kByGroups ? i % o_passes(C) : i / kWarpgroups;
    const int warpgroup = kByGroups ? i / o_passes(C) : i % kWarpgroups;
    const int index = q.slot() * kWarpgroups + warpgroup;
    // Each pass is a phase.
    const unsigned full_parity = o_passes(C) == 1 ? q.parity() : static_cast<unsigned>(pass % 2);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_full>(smem, index), full_parity);
    const unsigned from = smem + smem_layout(C).q.offset + index * q_slot_bytes(C);
    const int row =
        first_query_of<C>(p, tile, at) * padded_heads(C) + tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup;
    const int first = (cta_of_tile<C>() * o_passes(C) + pass) * kPanels;
    if (!fills_box<C>(p, tile, warpgroup)) {
    } else if constexpr (!is_packed(C) && is_padded(C.facts)) {
#pragma unroll 1
      for (int panel = 0; panel < kPanels; ++panel) {
        ptx::tma_store_5d(p.o, from + panel * kRowsPerWarpgroup * swizzle_span_bytes(C.swizzle),
                          (first + panel) * o_span_elements(C), row, 0, at.head, sequence_of_map<C>(at));
      }
    } else if constexpr (!is_packed(C)) {
      ptx::tma_store_5d(p.o, from, 0, row, first, at.head, sequence_of_map<C>(at));
    } else {
#pragma unroll 1
      for (int panel = 0; panel < kPanels; ++panel) {
        ptx::tma_store_5d(p.o, from + panel * kRowsPerWarpgroup * swizzle_span_bytes(C.swizzle),
                          (first + panel) * o_span_elements(C), head_of_box<C>(row), row / padded_heads(C), at.head,
                          sequence_of_map<C>(at));
      }
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();
    const bool is_last = pass == o_passes(C) - 1;
    ptx::mbarrier_arrive(
        smem + (is_last ? barrier_at<kBarriers.q_empty>(0, index) : barrier_at<kBarriers.o_read>(0, warpgroup)));
  }
}

}  // namespace tessera::fmha
