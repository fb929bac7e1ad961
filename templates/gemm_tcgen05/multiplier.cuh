// The multiplying warp: waits for a slot of the ring, copies its scales to Tensor Memory, issues the products.
//
// One lane issues everything, because a commit tracks what its own thread has issued. A slot of the ring is free once
// its products are complete: their commit says so to the producers of all CTAs of the cluster. Copies of scales come
// before the products that read them in the order of issue, tile by tile along K; that a copy waits for earlier
// products which still read its columns the manual does not promise, so the scales have slots of their own, and where
// there are fewer than the ring has, the lane waits for the products of the slot's last use.
//
// Scales behind the end of K: a 4-bit instruction takes several blocks, and the last one may read blocks that do not
// exist. Their values are zeros, but zero times a NaN code is NaN, and what lies there may be anything. So in the step
// that K ends in the warp clears those bytes in shared memory before they are copied. Instructions that lie behind K
// altogether are not issued, but for the first one, which a K of 0 needs.
#pragma once

#include "common/ring.cuh"
#include "gemm_tcgen05/params.cuh"
#include "gemm_tcgen05/schedule.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/pairs.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// What a descriptor has of an address: in a cluster the bits above say whose memory it is, and would run into the field
// beside it.
__device__ __forceinline__ unsigned start_in_cta(unsigned address) { return address & 0x3ffffu; }
// A descriptor by its words: the high one is a constant, and in the low one the start stays below its field's end.
__device__ __forceinline__ unsigned long long descriptor_at(const layout::SmemDescriptor& of_zero, unsigned start) {
  const unsigned long long fixed = layout::encode_smem_descriptor(layout::DescriptorKind::tcgen05, of_zero);
  return ptx::pack_words(static_cast<unsigned>(fixed) | start_in_cta(start) >> 4, static_cast<unsigned>(fixed >> 32));
}
// Rows of one swizzle span, in groups of 8; or panels of them, where the operand is MN-major.
template <Config C>
__device__ __forceinline__ unsigned long long operand_descriptor(unsigned start, bool is_of_lanes) {
  return descriptor_at(operand_descriptor(C, is_of_lanes), start);
}
// A tile of scales: 32 rows of 16 bytes.
__device__ __forceinline__ unsigned long long scale_descriptor(unsigned start) {
  return descriptor_at({.leading_bytes = 16, .stride_bytes = 128, .layout = layout::SmemLayout::none}, start);
}
// What lies `bytes` further.
__device__ __forceinline__ unsigned long long advance(unsigned long long descriptor, int bytes) {
  return ptx::pack_words(static_cast<unsigned>(descriptor) + static_cast<unsigned>(bytes >> 4),
                         static_cast<unsigned>(descriptor >> 32));
}

template <Config C>
struct Multiplier {
  static constexpr int kPair = pair_size(C);
  static constexpr SmemLayout kMap = smem_layout(C);
  static constexpr TmemLayout kTmem = tmem_layout(C);
  static constexpr int kTiles = is_scaled(C) ? scale_tiles(C) : 1;  // of scales along K, in a step
  static constexpr int kChunksOfTile = kChunks / kTiles;

  const unsigned smem;
  const unsigned tmem;
  const int k;
  const Barriers barriers = gemm_tcgen05::barriers(C, smem);

  __device__ __forceinline__ unsigned lane_scales(int slot) const {
    return smem + kMap.lane_scales.offset + slot * scale_slot_bytes(C, 1);
  }
  __device__ __forceinline__ unsigned column_scales(int slot) const {
    return smem + kMap.column_scales.offset + slot * products(C) * scale_slot_bytes(C, column_blocks(C));
  }

  // Clears the bytes of blocks past K in the tile that K ends in. All lanes.
  __device__ __forceinline__ void mend_scales(int slot, int step) const {
    const int blocks = (k - step * tile_k(C)) / scale_block(C);  // of this step that exist
    if (blocks <= 0 || blocks >= scale_tiles(C) * kTileBlocks || blocks % kTileBlocks == 0) return;
    const unsigned keep = (1u << (blocks % kTileBlocks * 8)) - 1;
    const unsigned offset = blocks / kTileBlocks * kTileBytes + threadIdx.x % 32 * 16;
    const auto mend = [&](unsigned address) {
      const ptx::Words4 v = ptx::ld_shared_v4(address);
      ptx::st_shared_v4(address, {v.x & keep, v.y & keep, v.z & keep, v.w & keep});
    };
    mend(lane_scales(slot) + offset);
#pragma unroll
    for (int i = 0; i < products(C) * column_blocks(C); ++i)
      mend(column_scales(slot) + i * scale_tiles(C) * kTileBytes + offset);
    ptx::fence_proxy_async_shared();
  }

  // Where the scales of a product's columns stand in a slot: those of all row blocks side by side, as an instruction
  // reads them.
  static __device__ __forceinline__ constexpr unsigned column_scale(int product) {
    return 4 * (1 + product * column_blocks(C));
  }

  // Of one tile along K.
  __device__ __forceinline__ void copy_scales(int slot, int tile, unsigned to) const {
    ptx::tcgen05_cp_32x128b_warpx4<kPair>(to, advance(scale_descriptor(lane_scales(slot)), tile * kTileBytes));
    const unsigned long long of_columns = scale_descriptor(column_scales(slot));
#pragma unroll
    for (int i = 0; i < products(C) * column_blocks(C); ++i)
      ptx::tcgen05_cp_32x128b_warpx4<kPair>(to + 4 * (1 + i),
                                            advance(of_columns, (i * scale_tiles(C) + tile) * kTileBytes));
  }

  // One of the products of one step, as far as a tile of scales along K reaches. `first_column`: where its scales begin
  // in a tile of 128.
  __device__ __forceinline__ void multiply(int product, int slot, int tile, unsigned sums, unsigned scales, int chunks,
                                           int first_column, bool accumulate) const {
    const unsigned long long of_lanes =
        operand_descriptor<C>(smem + kMap.lanes.offset + slot * kLanes * kStepBytes, true);
    const unsigned long long of_columns = operand_descriptor<C>(
        smem + kMap.columns.offset + (slot * products(C) + product) * column_rows(C) * kStepBytes, false);
    const unsigned column_offset = static_cast<unsigned>(first_column) / 32;
#pragma unroll
    for (int j = 0; j < kChunksOfTile; ++j) {
      const int i = tile * kChunksOfTile + j;
      if (i >= chunks) break;
      constexpr auto kInstruction = [](int chunk) {
        return layout::encode_instruction_descriptor(kind(C), instruction(C, chunk));
      };
      const unsigned long long a = advance(of_lanes, i * chunk_stride_bytes(C, true));
      const unsigned long long b = advance(of_columns, i * chunk_stride_bytes(C, false));
      if constexpr (is_scaled(C)) {
        ptx::tcgen05_mma_block_scale<kind(C), scale_block(C), kPair>(
            sums, a, b, kInstruction(i), scales, scales + column_scale(product) + column_offset, accumulate || i > 0);
      } else {
        ptx::tcgen05_mma<kind(C), kPair>(sums, a, b, kInstruction(i), accumulate || i > 0);
      }
    }
  }

  __device__ __forceinline__ int chunks_of(int step) const {
    const int left = k - step * tile_k(C);
    return left >= tile_k(C) ? kChunks : max((left + chunk_k(C) - 1) / chunk_k(C), 1);
  }

  // An arrival in every CTA of a mask; without a pair, in this one.
  static __device__ __forceinline__ void commit(unsigned barrier, int ctas) {
    if constexpr (kPair == 2) {
      ptx::tcgen05_commit_multicast<2>(barrier, static_cast<unsigned short>(ctas));
    } else {
      ptx::tcgen05_commit<1>(barrier);
    }
  }

  // Until slot `ring` is full, its scales mended. The odd CTA of a pair does nothing else, and that only where there is
  // something to mend.
  __device__ __forceinline__ void receive(const common::RingPosition<C.stages>& ring, int step, bool is_odd,
                                          int even_rank) const {
    if constexpr (has_scale_barriers(C)) {
      if (are_scales_apart<C>(k)) {
        ptx::mbarrier_wait_parity(barriers.scales[ring.slot], ring.parity);
        mend_scales(ring.slot, step);
        __syncwarp();
        const unsigned peer_scales = barriers.peer_scales[ring.slot];
        if (is_odd) {
          if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive_release_cluster(ptx::mapa(peer_scales, even_rank));
          return;
        }
        ptx::mbarrier_wait_parity_acquire_cluster(peer_scales, ring.parity);
      }
    }
    ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
    if constexpr (is_scaled(C) && !has_scale_barriers(C) && reads_past_k(C)) mend_scales(ring.slot, step);
    // All lanes have looked before one goes on, by whose commit the slot may be filled again.
    __syncwarp();
  }
};

// The slots of tiles of scales in Tensor Memory, in turn. Whether the next one is free is asked for a tile before the
// answer is needed: with few slots the lane would wait for an answer behind each tile.
template <Config C>
struct ScaleSlots {
  static constexpr int kSlots = scale_slots(C) > 0 ? scale_slots(C) : 1;
  common::RingPosition<kSlots> position;  // of the next tile to copy
  common::RingPosition<kSlots> read;      // of the next one whose products are issued
  bool is_free = true;

  // Where the next tile's scales go, once the products that read the slot last are complete.
  __device__ __forceinline__ unsigned next(const Barriers& barriers) {
    if constexpr (waits_for_scale_slots(C)) {
      if (!is_free) ptx::mbarrier_wait_parity(barriers.scales_read[position.slot], position.parity ^ 1);
    }
    const int now = position.slot;
    position.advance();
    if constexpr (waits_for_scale_slots(C))
      is_free = ptx::mbarrier_test_wait_parity(barriers.scales_read[position.slot], position.parity ^ 1);
    return Multiplier<C>::kTmem.scales + now * scale_columns(C);
  }
  // Behind the products that read it.
  __device__ __forceinline__ void release(const Barriers& barriers, int even_rank) {
    if constexpr (waits_for_scale_slots(C)) Multiplier<C>::commit(barriers.scales_read[read.slot], 1 << even_rank);
    read.advance();
  }
};

// One step, by the issuing lane. Scales of a tile's first step are copied before the sums may be written: beside the
// last tile's, which are still being read. `wait_for_sums`: until they may.
template <Config C, class Wait>
__device__ __forceinline__ void issue_step(const Multiplier<C>& multiplier, ScaleSlots<C>& slots, int ring_slot,
                                           unsigned sums, int chunks, int first_column, bool is_first, int even_rank,
                                           const Wait& wait_for_sums) {
  constexpr int kTiles = Multiplier<C>::kTiles, kChunksOfTile = Multiplier<C>::kChunksOfTile;
  unsigned scales[kTiles] = {};
  const auto copy = [&](int tile) {
    if constexpr (is_scaled(C)) {
      scales[tile] = multiplier.tmem + slots.next(multiplier.barriers);
      multiplier.copy_scales(ring_slot, tile, scales[tile]);
    }
  };
  if (is_first) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t * kChunksOfTile < chunks) copy(t);
    }
    wait_for_sums();
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    if (t * kChunksOfTile >= chunks) break;
    if (!is_first) copy(t);
#pragma unroll
    for (int i = 0; i < products(C); ++i)
      multiplier.multiply(i, ring_slot, t, sums + i * columns(C), scales[t], chunks, first_column, !is_first);
    if constexpr (is_scaled(C)) slots.release(multiplier.barriers, even_rank);
  }
}

// The whole warp.
template <Config C>
__device__ __forceinline__ void multiply(const Params& p, unsigned smem, unsigned tmem) {
  Schedule<C> schedule{p};
  const Multiplier<C> multiplier{smem, tmem, p.k};
  const Barriers& barriers = multiplier.barriers;
  const bool is_odd = schedule.pair_rank() != 0;
  const int even_rank = schedule.even_rank();
  constexpr int kAllCtas = (1 << pair_size(C) * pairs(C)) - 1;  // of the cluster: all read what each one loads
  const int own_pair = 3 << even_rank;
  if (is_odd && !are_scales_apart<C>(p.k)) return;
  const bool is_issuer = ptx::elect_sync();
  common::RingPosition<C.stages> ring;
  common::RingPosition<sum_phases(C)> sums;
  ScaleSlots<C> scale_slots;
#pragma unroll 1
  for (; schedule.has_tile(); schedule.advance()) {
    const Tile tile = schedule.tile();
    const int first_column = is_swapped(C) ? tile.a_in_scales : tile.b_in_scales;
    const unsigned of_tile = tmem + first_sum<C>(sums.slot, sums.parity);
#pragma unroll 1
    for (int step = schedule.k_begin; step < schedule.k_end; ++step) {
      multiplier.receive(ring, step, is_odd, even_rank);
      if (is_issuer && !is_odd) {
        ptx::tcgen05_fence_after_thread_sync();
        issue_step(multiplier, scale_slots, ring.slot, of_tile, multiplier.chunks_of(step), first_column,
                   step == schedule.k_begin, even_rank, [&] {
                     ptx::mbarrier_wait_parity_acquire_cluster(barriers.sums_empty[sums.slot], sums.parity ^ 1);
                     ptx::tcgen05_fence_after_thread_sync();
                   });
        Multiplier<C>::commit(barriers.empty[ring.slot], kAllCtas);
      }
      __syncwarp();
      ring.advance();
    }
    if (is_issuer && !is_odd) Multiplier<C>::commit(barriers.sums_full[sums.slot], own_pair);
    __syncwarp();
    sums.advance();
  }
}

}  // namespace tessera::gemm_tcgen05
