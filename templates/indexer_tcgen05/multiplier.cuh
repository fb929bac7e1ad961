// The multiplying warp: tiles of keys as they come, by all columns of a tile of queries, into accumulators in turn.
//
// One lane issues everything, because a commit tracks what its own thread has issued. Slots of keys and queries are
// given back by the warps that take the sums, which know by a commit that products have read them; scales in Tensor
// Memory are free for the same reason when their accumulator, or their slot of queries, is used again.
#pragma once

#include "common/ring.cuh"
#include "indexer/producer.cuh"
#include "indexer/ranges.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/indexer_tcgen05.h"

namespace tessera::indexer_tcgen05 {

// An accumulator's full barrier.
template <Config C>
__device__ __forceinline__ unsigned sum_barrier(unsigned smem, int accumulator) {
  return common::barrier_at<barriers(C).sums>(smem, accumulator);
}

// Rows of one swizzle span, in groups of 8.
template <Config C>
__device__ __forceinline__ unsigned long long rows_descriptor(unsigned start) {
  return layout::encode_smem_descriptor(layout::DescriptorKind::tcgen05, {.start = start,
                                                                          .leading_bytes = 16,
                                                                          .stride_bytes = 8 * row_bytes(C),
                                                                          .layout = layout::smem_layout(swizzle(C))});
}
// A tile of scales: 32 rows of 16 bytes.
__device__ __forceinline__ unsigned long long scales_descriptor(unsigned start) {
  return layout::encode_smem_descriptor(
      layout::DescriptorKind::tcgen05,
      {.start = start, .leading_bytes = 16, .stride_bytes = 128, .layout = layout::SmemLayout::none});
}
// What lies `bytes` further: the start stays below 2^18, so nothing carries out of its field.
__device__ __forceinline__ unsigned long long advance(unsigned long long descriptor, int bytes) {
  return descriptor + static_cast<unsigned>(bytes >> 4);
}

// The whole warp: a word for each of kRows rows becomes tiles of scales, in place, zeros behind the last row.
// place(row): where a row's word lies, in words.
template <int kRows, class Place>
__device__ __forceinline__ void arrange_scales(unsigned scales, const Place& place) {
  constexpr int kTiles = (kRows + kLanes - 1) / kLanes, kWords = 4 * kTiles;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int row = i * kWarp + lane;
    words[i] = row < kRows ? ptx::ld_shared_u32(scales + 4 * static_cast<unsigned>(place(row))) : 0;
  }
  __syncwarp();  // all have read before one writes
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    ptx::st_shared_v4(scales + i * kScaleTileBytes + 16 * lane,
                      {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]});
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

// One lane: steps from kStep on, since an instruction's descriptor is a constant.
template <Config C, int kStep = 0>
__device__ __forceinline__ void multiply_steps(unsigned sums, unsigned long long keys, unsigned long long q,
                                               unsigned key_scales, unsigned query_scales) {
  if constexpr (kStep < steps(C)) {
    constexpr layout::InstructionDescriptor kFields = instruction(C, kStep);
    static_assert(layout::why_invalid(kind(C), kFields).rule == layout::InstructionRule::ok);
    constexpr unsigned kInstruction = layout::encode_instruction_descriptor(kind(C), kFields);
    if constexpr (is_fp4(C)) {
      ptx::tcgen05_mma_block_scale<kind(C), kScaleBlock, 1>(sums, advance(keys, 32 * kStep), advance(q, 32 * kStep),
                                                            kInstruction, key_scales, query_scales, kStep > 0);
    } else {
      ptx::tcgen05_mma<kind(C), 1>(sums, advance(keys, 32 * kStep), advance(q, 32 * kStep), kInstruction, kStep > 0);
    }
    multiply_steps<C, kStep + 1>(sums, keys, q, key_scales, query_scales);
  }
}

// The whole warp.
template <Config C>
__device__ __forceinline__ void multiply(unsigned smem, unsigned tmem) {
  constexpr SmemLayout kMap = smem_layout(C);
  constexpr TmemLayout kTmem = tmem_layout(C);
  const bool is_issuer = ptx::elect_sync();
  common::RingPosition<kQuerySlots> of_q;
  common::RingPosition<C.stages> ring;
  common::RingPosition<accumulators(C)> sums;
  for (;;) {
    ptx::mbarrier_wait_parity(query_barrier<C>(smem, of_q.slot), of_q.parity);
    const int tiles = ranges_of_slot<C>(smem, of_q.slot).tiles();
    if (tiles == 0) break;
    const unsigned long long q = rows_descriptor<C>(smem + kMap.q + of_q.slot * q_slot_bytes(C));
    const unsigned query_scales = tmem + kTmem.query_scales + of_q.slot * query_scale_columns(C);
    if constexpr (is_fp4(C)) {
      const unsigned from = smem + kMap.q_scales + of_q.slot * query_scales_slot_bytes(C);
      arrange_scales<loaded_columns(C)>(from, [](int row) { return row; });
      if (is_issuer) {
#pragma unroll
        for (int i = 0; i < query_scale_tiles(C); ++i)
          ptx::tcgen05_cp_32x128b_warpx4<1>(query_scales + i * kScaleTileColumns,
                                            scales_descriptor(from + i * kScaleTileBytes));
      }
    }
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      const unsigned full = sum_barrier<C>(smem, sums.slot);
      ptx::mbarrier_wait_parity(common::empty_behind<accumulators(C)>(full), sums.parity ^ 1);
      ptx::mbarrier_wait_parity(key_barrier<C>(smem, ring.slot), ring.parity);
      const unsigned scales = smem + kMap.scales + ring.slot * scales_slot_bytes(C);
      if constexpr (is_fp4(C)) {
        arrange_scales<kLanes>(scales,
                               [](int key) { return key / keys_of_run(C) * scales_pitch(C) + key % keys_of_run(C); });
      }
      __syncwarp();
      if (is_issuer) {
        ptx::tcgen05_fence_after_thread_sync();
        const unsigned key_scales = tmem + kTmem.key_scales + sums.slot * kScaleTileColumns;
        if constexpr (is_fp4(C)) ptx::tcgen05_cp_32x128b_warpx4<1>(key_scales, scales_descriptor(scales));
        multiply_steps<C>(tmem + sums.slot * loaded_columns(C),
                          rows_descriptor<C>(smem + kMap.keys + ring.slot * key_slot_bytes(C)), q, key_scales,
                          query_scales);
        ptx::tcgen05_commit<1>(full);
      }
      __syncwarp();
      ring.advance();
      sums.advance();
    }
    of_q.advance();
  }
}

}  // namespace tessera::indexer_tcgen05
