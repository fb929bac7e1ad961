// Q that threads copy: packed heads of which a warpgroup's rows are neither whole queries nor heads of one query, so
// that no box of the tensor map has these rows. A whole warp copies them, 16 bytes a lane; rows behind the head's are
// zeros.
#pragma once

#include "fmha/epilogue.cuh"
#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// As load_q of producer.cuh. Of `warps` that share a tile's warpgroups this one has every other one from `own` on, but
// waits for the slots of all: who finds the tiles knows by them which message nobody reads any more. A row is found
// from the one that the lane had before.
template <Config C>
__device__ __forceinline__ void copy_q(const Params& p, unsigned smem, const TileIndex& tile, const HeadIndex& at,
                                       bool is_real, const RingPosition<C.q_stages>& q_ring, int own = 0,
                                       int warps = 1) {
  constexpr int kWarpgroups = row_groups(C);
  constexpr int kBytes = dtype_bytes(C.facts.dtype);
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kChunks = kSpan / 16;
  constexpr int kPanels = qk_columns(C) * kBytes / kSpan;
  constexpr int kPanelsAtOnce = kPanels <= 4 ? kPanels : 1;
  constexpr int kRowBytes = C.facts.head_dim * kBytes;  // of a padded row zeros come behind
  constexpr int kRowsAtOnce = 32 / kChunks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = is_real ? rows_of_tile_head<C>(p, tile) : 0;
  const int column = (cta_of_tile<C>() * kPanels * kChunks + lane % kChunks) * 16;  // bytes
  const char* from = static_cast<const char*>(p.q_rows) + column;
  if (is_real) {
    from += kBytes * (sequence_of_map<C>(at) * p.q_stride_batch + at.head * C.pack_gqa * p.q_stride_head +
                      first_query<C>(p, at.batch) * p.q_stride_seqlen);
  }
  const long long to_next =
      kBytes * (kRowsAtOnce / C.pack_gqa * p.q_stride_seqlen + kRowsAtOnce % C.pack_gqa * p.q_stride_head);
  const long long to_next_query = kBytes * (p.q_stride_seqlen - C.pack_gqa * p.q_stride_head);
#pragma unroll 1
  for (int warpgroup = 0; warpgroup < kWarpgroups; ++warpgroup) {
    const int slot = q_ring.slot() * kWarpgroups + warpgroup;
    ptx::mbarrier_wait_parity(barrier_at<barriers(C).q_empty>(smem, slot), q_ring.parity() ^ 1);
    if (warpgroup % warps != own) continue;
    const unsigned to = smem + smem_layout(C).q.offset + slot * q_slot_bytes(C);
    const int row = tile.m * C.tile_m + warpgroup * rows_of_box(C) + lane / kChunks;
    const int query = row / C.pack_gqa;
    int head = row - query * C.pack_gqa;
    const char* of_row = from + kBytes * (query * p.q_stride_seqlen + head * p.q_stride_head);
    int left = is_real ? rows - row : 0;  // a tile beyond the last may begin before row 0
#pragma unroll 1
    for (int i = lane / kChunks; i < rows_of_box(C); i += kRowsAtOnce) {
      const bool is_there = left > 0;
      const char* const source = is_there ? of_row : from;
      const unsigned chunk = swizzle_address(C.swizzle, to + i * kSpan + lane % kChunks * 16);
#pragma unroll kPanelsAtOnce
      for (int panel = 0; panel < kPanels; ++panel) {
        const bool is_column = !is_padded(C.facts) || panel * kSpan + column < kRowBytes;
        ptx::cp_async_16(chunk + panel * rows_of_box(C) * kSpan, source + panel * kSpan,
                         is_there && is_column ? 16 : 0);
      }
      left -= kRowsAtOnce;
      of_row += to_next;
      head += kRowsAtOnce % C.pack_gqa;
      if (head >= C.pack_gqa) {
        head -= C.pack_gqa;
        of_row += to_next_query;
      }
    }
    ptx::cp_async_mbarrier_arrive_noinc(barrier_at<barriers(C).q_full>(smem, slot));
  }
}

// The warp of Q, as produce() of producer.cuh.
template <Config C>
__device__ __forceinline__ void copy_queries(const Params& p, const Schedule<C>& schedule, unsigned smem) {
  RingPosition<C.q_stages> q_ring;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    const bool is_real = schedule.has(round);
    if (!is_real && (!joins_tiles(C) || round == 0)) break;
    tile = schedule.at(round);
    const HeadIndex at = head_of<C>(p, tile);
    wait_with_tile<C>(round);
    copy_q<C>(p, smem, tile, at, is_real, q_ring);
    if (!is_real) break;
    q_ring.advance();
  }
}

}  // namespace tessera::fmha
