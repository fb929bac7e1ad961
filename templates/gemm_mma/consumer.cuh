// A consumer warp: its part of each tile, from the ring to D.
//
// Fragments are double-buffered: those of the next chunk, 32 bytes along K, are on their way while the tensor cores
// have these, also from one slot to the next. So a slot is given back one chunk before its last products, once its last
// fragments are in registers, and the wait for the next slot has a chunk's products to hide behind.
#pragma once

#include "common/ring.cuh"
#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
#include "gemm_mma/epilogue.cuh"
#include "gemm_mma/fragments.cuh"
#include "gemm_mma/producer.cuh"
#include "gemm_mma/scales.cuh"
#include "gemm_mma/split.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"
#include "ptx/mma_8_bit.cuh"
#include "ptx/mma_block_scale.cuh"
#include "ptx/mma_block_scale_6_bit.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

inline constexpr int kBarrierOfConsumers = 1;  // 0 is __syncthreads()

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  using A = Operand<C, true>;
  using B = Operand<C, false>;

  const gemm::ProductParams& p;
  const unsigned smem;
  const Barriers barriers = gemm_mma::barriers(C, smem);
  // Taken from lane 0, so that the compiler knows one value for the warp.
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) - kWarpgroupThreads / 32;
  const int warp_along_m = warp / warps_along_n(C);
  const int warp_along_n = warp % warps_along_n(C);
  const A a{smem + kLayout.a.offset, warp_along_m};
  const B b{smem + kLayout.b.offset, warp_along_n};
  common::RingPosition<C.stages> ring{};
  int kept = 0;  // the last slot of a tile, until D has left through it

  const Scales<C, true> sfa{smem + kLayout.sfa.offset, warp_along_m};
  const Scales<C, false> sfb{smem + kLayout.sfb.offset, warp_along_n};

  struct Fragments {
    typename A::Fragments a;
    typename B::Fragments b;
    unsigned sfa[Scales<C, true>::kCells];
    unsigned sfb[Scales<C, false>::kCells];
  };
  // What scales need to know of where they are: the tile's first row and column in their tiles, and blocks left of K.
  struct Place {
    int row, column;
    int blocks;
  };

  __device__ __forceinline__ void wait() const { ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity); }
  // One arrival of each warp, whose lanes have read what they need of the slot. The fence ends the reads before TMA's
  // next writes, which are another proxy's: as end_reads() of fmha/warps.cuh.
  __device__ __forceinline__ void release(int slot) const {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(common::empty_behind<C.stages>(barriers.full[slot]));
  }

  __device__ __forceinline__ void fetch(Fragments& fragments, int chunk, const Place& place) const {
    a.load(fragments.a, ring.slot, chunk);
    b.load(fragments.b, ring.slot, chunk);
    if constexpr (is_scaled(C)) {
      sfa.load(fragments.sfa, ring.slot, chunk, place.row, place.blocks);
      sfb.load(fragments.sfb, ring.slot, chunk, place.column, place.blocks);
    }
  }

  // 16 rows by 8 columns: kM and kN count such blocks.
  template <int kChunk, int kM, int kN>
  static __device__ __forceinline__ void multiply_block(Sums<C>& sums, const Fragments& fragments) {
    const unsigned(&of_a)[4] = fragments.a[kM];
    const unsigned b0 = fragments.b[kN / 2][kN % 2 * 2], b1 = fragments.b[kN / 2][kN % 2 * 2 + 1];
    if constexpr (is_scaled(C)) {
      ptx::mma_block_scale<a_type(C), b_type(C), scale_byte(C, kChunk), kM % 2, kN % 4>(
          sums[kM][kN], of_a, b0, b1, fragments.sfa[kM / 2], fragments.sfb[kN / 4]);
    } else if constexpr (element_bits(C) == 16) {
      ptx::mma_m16n8k16<a_dtype(C)>(sums[kM][kN], of_a, b0, b1);
    } else {
      ptx::mma_m16n8k32<a_dtype(C), b_dtype(C)>(sums[kM][kN], of_a, b0, b1);
    }
  }

  // By columns of 16, down the rows of each. Blocks are numbers of the type: ids of scales are part of an instruction.
  template <int kChunk, int kBlockOf = 0>
  static __device__ __forceinline__ void multiply_chunk(Sums<C>& sums, const Fragments& fragments) {
    if constexpr (kBlockOf < A::kBlocks * B::kBlocks) {
      constexpr int kM = kBlockOf % A::kBlocks, kN = kBlockOf / A::kBlocks * 2;
      multiply_block<kChunk, kM, kN>(sums, fragments);
      if constexpr (!B::kIsHalf) multiply_block<kChunk, kM, kN + 1>(sums, fragments);
      multiply_chunk<kChunk, kBlockOf + 1>(sums, fragments);
    }
  }

  // The last one of a slot gives it back, and has the next slot's first fragments on their way. A tile's last slot is
  // kept where D goes through it.
  template <int kChunk>
  __device__ __forceinline__ void step_chunk(Sums<C>& sums, Fragments (&fragments)[2], Place& place, bool is_last) {
    if constexpr (kChunk + 1 < kChunks) {
      fetch(fragments[(kChunk + 1) % 2], kChunk + 1, place);
    } else {
      if (has_d_map(C) && is_last) {
        kept = ring.slot;
      } else {
        release(ring.slot);
      }
      ring.advance();
      if (!is_last) {
        wait();
        if constexpr (is_scaled(C)) place.blocks -= scale_tiles(C) * kTileBlocks;
        fetch(fragments[0], 0, place);
      }
    }
    multiply_chunk<kChunk>(sums, fragments[kChunk % 2]);
  }

  __device__ __forceinline__ void multiply(Sums<C>& sums, const gemm::WalkedTile& tile, int part) {
    clear<C>(sums);
    const Steps steps = steps_of_part<C>(p.k, part);
    if (steps.begin == steps.end) return;
    Place place{};
    if constexpr (is_scaled(C))
      place = {copies_sfa(C) ? 0 : tile.a_in_scales, copies_sfb(C) ? 0 : tile.b_in_scales,
               (p.k - 1) / scale_block(C) + 1 - steps.begin * scale_tiles(C) * kTileBlocks};
    Fragments fragments[2];
    wait();
    fetch(fragments[0], 0, place);
#pragma unroll 1
    for (int left = steps.end - steps.begin; left > 0; --left) {
      step_chunk<0>(sums, fragments, place, false);
      step_chunk<1>(sums, fragments, place, false);
      step_chunk<2>(sums, fragments, place, false);
      step_chunk<3>(sums, fragments, place, left == 1);
    }
  }

  __device__ __forceinline__ unsigned staging_address() const {
    const unsigned slots =
        is_staged_in_a(C) ? kLayout.a.offset + kept * a_slot_bytes(C) : kLayout.b.offset + kept * b_slot_bytes(C);
    return smem + slots + warp * staging_bytes(C);
  }

  __device__ __forceinline__ void run() {
    Sums<C> sums;
    const Epilogue<C> epilogue{p};
    gemm::Walk<walk(C)> walk{p};
#pragma unroll 1
    for (; walk.has_tile(); walk.advance()) {
      const gemm::WalkedTile tile = walk.tile();
      const int column = columns_of_d(C, tile.b_row);
      multiply(sums, tile, walk.k_part());
      if constexpr (C.split_k == 1) {
        // Other warps may still fetch what lies where D goes.
        if constexpr (has_d_map(C)) ptx::barrier_sync(kBarrierOfConsumers, 32 * consumer_warps(C));
        epilogue.store(sums, tile, tile.a_row + warp_along_m * warp_m(C), column + warp_along_n * warp_columns(C),
                       staging_address());
        if constexpr (has_d_map(C)) {
          if (threadIdx.x % 32 == 0) ptx::cp_async_bulk_wait_group_read<0>();
          if (p.k > 0) release(kept);
        }
      } else {
        // Other warps may still multiply what lies there: each waited for its own part.
        ptx::barrier_sync(kBarrierOfConsumers, 32 * consumer_warps(C));
        share_sums<C>(sums, smem, warp);
        ptx::cluster_arrive();
        ptx::cluster_wait();
        store_shares(epilogue, smem, walk.k_part() * consumer_warps(C) + warp, tile, column);
      }
    }
  }
};

}  // namespace tessera::gemm_mma
