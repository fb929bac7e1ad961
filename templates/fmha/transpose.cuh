// e4m3 V from a slot as it was loaded, keys one after the other, to one that the tensor cores read, columns one after
// the other: which orders of keys and columns, and why, says spec/fmha_transposed.h.
//
// A step moves 32 keys of 16 columns. ldmatrix.trans takes pairs of columns as elements: lane t has of each of four
// matrices of 8 keys the columns 2 (t / 4) and the next of keys 2 (t % 4) and the next. Two permutations of bytes make
// four keys of one column of these, and of the other; stmatrix puts a lane's four into row t / 4.
#pragma once

#include "fmha/key_blocks.cuh"
#include "fmha/params.cuh"
#include "fmha/passed_tiles.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "ptx/fence.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// A block, by kTransposingWarps warps. `warp`: of these.
template <Config C>
__device__ __forceinline__ void transpose_block(unsigned from, unsigned to, int warp) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);  // of a raw panel
  constexpr Swizzle kSwizzle = transposed_swizzle(C);
  constexpr int kKeySpan = swizzle_span_bytes(kSwizzle);
  constexpr int kStride = 16 * kTransposingWarps;  // columns from one chunk of a warp to the next
  static_assert(v_columns(C) % kStride == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk = 16 * warp;  // the warp's first: columns, which are bytes
  // Patterns of swizzles depend on the lane alone: groups of keys and further chunks are distances.
  const unsigned source =
      swizzle_address(C.swizzle, from + chunk / kSpan * C.tile_n * kSpan + lane * kSpan + chunk % kSpan);
  const unsigned target = swizzle_address(kSwizzle, to + (chunk + lane % 16) * kKeySpan + lane / 16 * 16);
#pragma unroll 1
  for (int column = 0; column < v_columns(C); column += kStride) {
    const unsigned of_column = (source ^ (column % kSpan)) + column / kSpan * C.tile_n * kSpan;
#pragma unroll
    for (int key = 0; key < C.tile_n; key += 32) {
      unsigned r[4];
      ptx::ldmatrix_x4_trans(of_column + key * kSpan, r);
      ptx::stmatrix_x4((target ^ (key % kKeySpan)) + key / kKeySpan * v_columns(C) * kKeySpan + column * kKeySpan,
                       ptx::prmt(r[0], r[1], 0x6420), ptx::prmt(r[0], r[1], 0x7531), ptx::prmt(r[2], r[3], 0x6420),
                       ptx::prmt(r[2], r[3], 0x7531));
    }
  }
}

// The transposing warps: block after block, as loads bring them.
template <Config C, class Walk>
__device__ __forceinline__ void transpose_tiles(const Params& p, const Walk& schedule, unsigned smem) {
  constexpr LoadRing kRing = load_ring(C, true);
  constexpr Barriers kBarriers = barriers(C);
  const int warp = static_cast<int>(threadIdx.x) / 32 % kTransposingWarps;
  constexpr bool kIsOneRing = raw_v_stages(C) == C.stages;  // loading threads have few registers
  RingPosition<C.stages> ring;
  RingPosition<raw_v_stages(C)> other;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0; schedule.has(round); round = schedule.next(round, tile)) {
    tile = schedule.at(round);
    const int count = loaded_keys_of<C>(p, schedule, tile).count;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int raw_slot = kIsOneRing ? ring.slot() : other.slot();
      ptx::mbarrier_wait_parity(barrier_at<kRing.full>(smem, raw_slot), kIsOneRing ? ring.parity() : other.parity());
      ptx::mbarrier_wait_parity(barrier_at<kBarriers.v_empty>(smem, ring.slot()), ring.parity() ^ 1);
      transpose_block<C>(smem + kRing.offset + raw_slot * kRing.slot_bytes,
                         smem + smem_layout(C).v.offset + ring.slot() * v_slot_bytes(C), warp);
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        ptx::mbarrier_arrive(barrier_at<kBarriers.v_full>(smem, ring.slot()));
        ptx::mbarrier_arrive(barrier_at<kRing.empty>(smem, raw_slot));
      }
      if constexpr (!kIsOneRing) other.advance();
      ring.advance();
    }
  }
}

}  // namespace tessera::fmha
