// A tile's TMA load and store for a rank that is known when the kernel is compiled: one instruction each.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::copy2d {

template <int kRank>
__device__ __forceinline__ void load_tile(unsigned to, const ptx::TensorMap& map, unsigned barrier, const int (&c)[5]) {
  if constexpr (kRank == 1) ptx::tma_load_1d(to, map, barrier, c[0]);
  if constexpr (kRank == 2) ptx::tma_load_2d(to, map, barrier, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_load_3d(to, map, barrier, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_load_4d(to, map, barrier, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_load_5d(to, map, barrier, c[0], c[1], c[2], c[3], c[4]);
}

template <int kRank>
__device__ __forceinline__ void store_tile(const ptx::TensorMap& map, unsigned from, const int (&c)[5]) {
  if constexpr (kRank == 1) ptx::tma_store_1d(map, from, c[0]);
  if constexpr (kRank == 2) ptx::tma_store_2d(map, from, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_store_3d(map, from, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_store_4d(map, from, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_store_5d(map, from, c[0], c[1], c[2], c[3], c[4]);
}

}  // namespace tessera::copy2d
