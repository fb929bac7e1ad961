// Rows of O that no box stores and that leave by their tile's Q slot, from where each warp takes its own.
#pragma once

#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/staging.cuh"
#include "ptx/global.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// By wgmma: whether 16-bit rows that no box stores go through the tile's Q slot, from which each warp takes its own.
// That is a loop of few instructions, where an exchange between lanes is one for every register. Keys that are not
// dealt keep the exchange: by the slot their kernels took 1.3 to 2 % longer.
template <Config C>
__device__ constexpr bool leaves_by_slot() {
  return is_dealt(C) && !uses_mma_sync(C) && C.facts.output == Output::normalized && !has_fours(C);
}

// O in Q slot number `index`, for each warp to read what it wrote.
template <Config C>
__device__ __forceinline__ unsigned stage_for_warp(const Accumulator<C>& output, int warpgroup, int index,
                                                   unsigned smem) {
  const unsigned slot = smem + smem_layout(C).q.offset + index * q_slot_bytes(C);
  meet_warpgroup(warpgroup);
  stage_normalized<C>(output, slot);
  __syncwarp();
  return slot;
}

// Rows of the warp's 16 that are the head's, as stage_normalized() left them.
template <Config C>
__device__ __forceinline__ void store_staged_rows(const Params& p, const TileIndex& tile, int warpgroup,
                                                  unsigned slot) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kChunks = o_columns(C) / 8;
  const HeadIndex at = head_of<C>(p, tile);
  const int first_row = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16;
  const int first = tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup + first_row;
  const int rows = min(rows_of_tile_head<C>(p, tile) - first, 16);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < rows * kChunks; i += 32) {
    const unsigned place = static_cast<unsigned>(i);  // whose division is shorter
    const int row = static_cast<int>(place / kChunks), byte = static_cast<int>(place % kChunks * 16);
    const unsigned from = slot + byte / kSpan * kRowsPerWarpgroup * kSpan + (first_row + row) * kSpan + byte % kSpan;
    const ptx::Words4 words = ptx::ld_shared_v4(swizzle_address(C.swizzle, from));
    char* const to = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), first + row) +
                     o_element_bytes(C.facts) * (cta_of_tile<C>() * v_columns(C));
    ptx::st_global_v4(to + byte, {words.x, words.y, words.z, words.w});
  }
}

// A whole tile's O by its Q slot, which is free then.
template <Config C>
__device__ __forceinline__ void store_by_slot(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                              int warpgroup, const RingPosition<C.q_stages>& q, unsigned smem) {
  const int index = q.slot() * row_groups(C) + warpgroup;
  store_staged_rows<C>(p, tile, warpgroup, stage_for_warp<C>(output, warpgroup, index, smem));
  give_rows(barrier_at<barriers(C).q_empty>(smem, index));
}

}  // namespace tessera::fmha
