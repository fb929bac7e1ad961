// What a warpgroup does with a finished tile: row statistics to global memory, O through its Q slot by TMA store.
#pragma once

#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Named barriers: 0 is __syncthreads(); turns of the warpgroups; a warpgroup among itself.
inline constexpr int kBarrierOfTurn = 1;
inline constexpr int kBarrierOfWarpgroup = 5;

// One thread of four writes a row's statistics. LSE = m + ln(sum), both in the units of the scaled scores.
template <Config C>
__device__ __forceinline__ void store_statistics(const Params& p, const TileIndex& tile, const RowStatistics& rows,
                                                 const Scale& scale, int row) {
  if (threadIdx.x % 4 != 0) return;
  const long long first = (static_cast<long long>(tile.batch) * p.heads_q + tile.head) * p.seqlen_q;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= p.seqlen_q) continue;
    const long long index = first + row + 8 * r;
    const bool sees_no_key = rows.max[r] == ptx::minus_infinity();
    const float reference = rows.reference(r, scale);
    if (p.lse != nullptr) p.lse[index] = (reference + ptx::lg2(rows.sum[r])) * kLn2;
    if constexpr (C.output == Output::unnormalized) {
      p.row_max[index] = sees_no_key ? ptx::minus_infinity() : reference * kLn2;
      p.row_sum[index] = rows.sum[r];
    }
  }
}

// 16-bit O: stmatrix takes the fragment as it is, two 16-byte chunks of 16 rows at a time.
template <Config C>
__device__ __forceinline__ void stage_normalized(const Accumulator<C>& output, const float (&factor)[2],
                                                 unsigned slot) {
  constexpr int kChunksOfSpan = swizzle_span_bytes(C.swizzle) / 16;
  const int thread = ptx::forget(static_cast<int>(threadIdx.x) % kWarpgroupThreads);
  const int lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int i = 0; i < C.head_dim / 16; ++i) {
    const int chunk = 2 * i + lane / 16;
    const int offset = ((chunk / kChunksOfSpan * kRowsPerWarpgroup + row) * kChunksOfSpan + chunk % kChunksOfSpan) * 16;
    unsigned packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int v = 8 * i + 2 * j;
      packed[j] = ptx::cvt_pack<C.dtype>(output[v] * factor[j % 2], output[v + 1] * factor[j % 2]);
    }
    ptx::stmatrix_x4(swizzle_address(C.swizzle, slot + offset), packed[0], packed[1], packed[2], packed[3]);
  }
}

// fp32 O: the columns of one pass.
template <Config C>
__device__ __forceinline__ void stage_unnormalized(const Accumulator<C>& output, int pass, unsigned slot) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kCount = C.head_dim / 2 / o_passes(C);
  const int thread = ptx::forget(static_cast<int>(threadIdx.x) % kWarpgroupThreads);
  const int row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int v = 0; v < kCount; v += 2) {
    const int byte = (8 * (v / 4) + 2 * (thread % 4)) * 4;
    const int offset = (byte / kSpan * kRowsPerWarpgroup + row + 8 * (v / 2 % 2)) * kSpan + byte % kSpan;
    const float low = pass == 0 ? output[v] : output[kCount + v];
    const float high = pass == 0 ? output[v + 1] : output[kCount + v + 1];
    ptx::st_shared_v2_f32(swizzle_address(C.swizzle, slot + offset), low, high);
  }
}

// `slot` holds Q, which every warp of the warpgroup has finished reading once the first barrier is passed. The elected
// thread hands the slot back to the producer as soon as TMA has read O from it.
template <Config C>
__device__ __forceinline__ void store_output(const Params& p, const TileIndex& tile, int warpgroup,
                                             Accumulator<C>& output, const float (&factor)[2], unsigned slot,
                                             unsigned q_empty) {
  const bool is_first_warp = threadIdx.x % kWarpgroupThreads < 32;
#pragma unroll
  for (int pass = 0; pass < o_passes(C); ++pass) {
    ptx::barrier_sync(kBarrierOfWarpgroup + warpgroup, kWarpgroupThreads);
    if constexpr (C.output == Output::normalized) {
      stage_normalized<C>(output, factor, slot);
    } else {
      stage_unnormalized<C>(output, pass, slot);
    }
    ptx::fence_proxy_async_shared();
    ptx::barrier_sync(kBarrierOfWarpgroup + warpgroup, kWarpgroupThreads);
    if (is_first_warp && ptx::elect_sync()) {
      constexpr int kPanels = C.head_dim / o_passes(C) / o_span_elements(C);
      ptx::tma_store_5d(p.o, slot, 0, tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup, pass * kPanels, tile.head,
                        tile.batch);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<0>();
      if (pass == o_passes(C) - 1) ptx::mbarrier_arrive(q_empty);
    }
    __syncwarp();
  }
}

}  // namespace tessera::fmha
