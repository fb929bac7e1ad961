// Adding up the parts of K: every CTA of a tile leaves its sums in its own shared memory, where the ring was, and after
// a barrier of the cluster each warp of each fetches units of them from all CTAs, in the order of the parts, and stores
// what they add up to.
//
// Sums lie by units (units() in spec/gemm_mma.h): a thread's four of each group of eight columns are 16 bytes, those of
// a warp's threads side by side.
#pragma once

#include "gemm/product_walk.cuh"
#include "gemm_mma/epilogue.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

inline constexpr int kGroupBytes = 512;  // of a warp's sums of 16 rows by 8 columns

template <Config C>
__device__ __forceinline__ unsigned unit_address(unsigned smem, int unit) {
  return smem + smem_layout(C).a.offset + unit * unit_bytes(C) + threadIdx.x % 32 * 16;
}

// Sums of integers travel as bits.
__device__ __forceinline__ float as_float(float x) { return x; }
__device__ __forceinline__ float as_float(int x) { return __int_as_float(x); }

// The ring is free once all consumers have multiplied: its slots were filled and waited for, and no other loads follow.
template <Config C>
__device__ __forceinline__ void share_sums(const Sums<C>& sums, unsigned smem, int warp) {
  constexpr int kGroups = warp_n(C) / 8;
  const unsigned to = unit_address<C>(smem, warp * units_of_warp(C));
#pragma unroll
  for (int m = 0; m < warp_m(C) / kBlock; ++m) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const Sum<C>(&v)[4] = sums[m][n];
      ptx::st_shared_v4_f32(to + (m * kGroups + n) * kGroupBytes, as_float(v[0]), as_float(v[1]), as_float(v[2]),
                            as_float(v[3]));
    }
  }
}

template <Config C>
__device__ __forceinline__ void fetch_unit(UnitSums<C>& sums, unsigned smem, int unit) {
  const unsigned own = unit_address<C>(smem, unit);
#pragma unroll
  for (int g = 0; g < unit_groups(C); ++g) {
#pragma unroll
    for (int v = 0; v < 4; ++v) sums[g][v] = 0;
  }
#pragma unroll
  for (int part = 0; part < C.split_k; ++part) {
    const unsigned from = ptx::mapa(own, part);
#pragma unroll
    for (int g = 0; g < unit_groups(C); ++g) {
      float values[4];
      ptx::ld_cluster_v4_f32(from + g * kGroupBytes, values);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        if constexpr (is_integer(C)) {
          sums[g][v] += __float_as_int(values[v]);
        } else {
          sums[g][v] += values[v];
        }
      }
    }
  }
}

// `warp`: among those of the cluster; `column`: of D, the tile's first.
template <Config C>
__device__ __forceinline__ void store_shares(const Epilogue<C>& epilogue, unsigned smem, int warp,
                                             const gemm::WalkedTile& tile, int column) {
  constexpr int kAcross = warp_n(C) / 8 / unit_groups(C);  // units of a warp's 16 rows
#pragma unroll 1
  for (int unit = warp; unit < units(C); unit += C.split_k * consumer_warps(C)) {
    const int owner = unit / units_of_warp(C), within = unit % units_of_warp(C);
    UnitSums<C> sums;
    fetch_unit<C>(sums, smem, unit);
    epilogue.store_unit(sums, tile, tile.a_row + owner / warps_along_n(C) * warp_m(C) + within / kAcross * kBlock,
                        column + owner % warps_along_n(C) * warp_columns(C) + within % kAcross * unit_groups(C) * 8);
  }
}

}  // namespace tessera::gemm_mma
