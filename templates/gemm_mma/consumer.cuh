// A consumer warp: its part of each tile, from the ring to D.
//
// Fragments are double-buffered: those of the next chunk, 32 bytes along K, are on their way while the tensor cores
// have these, also from one slot to the next. So a slot is given back one chunk before its last products, once its last
// fragments are in registers, and the wait for the next slot has a chunk's products to hide behind.
#pragma once

#include "common/ring.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "gemm_mma/epilogue.cuh"
#include "gemm_mma/fragments.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"
#include "ptx/mma_8_bit.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  using A = Operand<C, true>;
  using B = Operand<C, false>;

  const gemm::Params& p;
  const unsigned smem;
  const Barriers barriers = gemm_mma::barriers(C, smem);
  const gemm::TileSchedule<walk(C)> schedule{p};
  // Taken from lane 0, so that the compiler knows one value for the warp.
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) - kWarpgroupThreads / 32;
  const int warp_along_m = warp / warps_along_n(C);
  const int warp_along_n = warp % warps_along_n(C);
  const A a{smem + kLayout.a.offset, warp_along_m};
  const B b{smem + kLayout.b.offset, warp_along_n};
  common::RingPosition<C.stages> ring{};

  struct Fragments {
    typename A::Fragments a;
    typename B::Fragments b;
  };

  __device__ __forceinline__ void wait() const { ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity); }
  // One arrival of each warp, whose lanes have read what they need of the slot.
  __device__ __forceinline__ void release() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(common::empty_behind<C.stages>(barriers.full[ring.slot]));
  }

  __device__ __forceinline__ void fetch(Fragments& fragments, int chunk) const {
    a.load(fragments.a, ring.slot, chunk);
    b.load(fragments.b, ring.slot, chunk);
  }

  static __device__ __forceinline__ void multiply_block(Sum<C>* sums, const unsigned (&of_a)[4], unsigned b0,
                                                        unsigned b1) {
    if constexpr (element_bytes(C) == 2) {
      ptx::mma_m16n8k16<a_dtype(C)>(sums, of_a, b0, b1);
    } else {
      ptx::mma_m16n8k32<a_dtype(C), b_dtype(C)>(sums, of_a, b0, b1);
    }
  }

  static __device__ __forceinline__ void multiply_chunk(Sums<C>& sums, const Fragments& fragments) {
#pragma unroll
    for (int n = 0; n < B::kBlocks; ++n) {
      const unsigned(&of_b)[4] = fragments.b[n];
#pragma unroll
      for (int m = 0; m < A::kBlocks; ++m) {
        multiply_block(sums[m][2 * n], fragments.a[m], of_b[0], of_b[1]);
        multiply_block(sums[m][2 * n + 1], fragments.a[m], of_b[2], of_b[3]);
      }
    }
  }

  __device__ __forceinline__ void multiply(Sums<C>& sums) {
    clear<C>(sums);
    if (p.k == 0) return;
    Fragments fragments[2];
    wait();
    fetch(fragments[0], 0);
#pragma unroll 1
    for (int left = schedule.steps(); left > 0; --left) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (chunk + 1 < kChunks) {
          fetch(fragments[(chunk + 1) % 2], chunk + 1);
        } else {
          release();
          ring.advance();
          if (left > 1) {
            wait();
            fetch(fragments[0], 0);
          }
        }
        multiply_chunk(sums, fragments[chunk % 2]);
      }
    }
  }

  __device__ __forceinline__ void run() {
    Sums<C> sums;
    const Epilogue<C> epilogue{p};
#pragma unroll 1
    for (int item = schedule.first(); item < schedule.items; item += schedule.stride()) {
      multiply(sums);
      const gemm::TileIndex tile = schedule.at(item);
      epilogue.store(sums, tile.row + warp_along_m * warp_m(C), tile.column + warp_along_n * warp_n(C), tile.batch);
    }
  }
};

}  // namespace tessera::gemm_mma
