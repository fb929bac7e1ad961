// Which tiles a CTA takes, and which part of K.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives cluster c of the grid the item r * clusters + c. Items walk down `raster` tiles of clusters along M before they
// go one further along N: CTAs that run at the same time form a block of D that is about square, and share the rows of
// A and B that it needs in the L2.
//
// The pair of a cluster lies along the dimension whose rows are lanes; CTAs of a split K have the same tile.
#pragma once

#include "gemm_tcgen05/params.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// A tile: the first row of the lanes' operand that this CTA loads, the first of the columns' operand of the whole tile.
struct Tile {
  int lane;
  int column;
  int batch;
};

template <Config C>
struct Schedule {
  const int rank;  // of this CTA in its cluster
  const int tiles_m;
  const int tiles_n;
  const int items;
  const int k_begin;  // steps along K
  const int k_end;

  __device__ __forceinline__ explicit Schedule(const Params& p)
      : rank(static_cast<int>(blockIdx.x) % cluster_size(C)),
        tiles_m((p.m - 1) / (C.tile_m * C.cluster_m) + 1),
        tiles_n((p.n - 1) / (C.tile_n * C.cluster_n) + 1),
        items(tiles_m * tiles_n * p.l),
        k_begin(begin_of_part(p.k, k_part())),
        k_end(max(part(p.k, k_part() + 1), k_begin + 1)) {}

  __device__ __forceinline__ int pair_rank() const { return pair_size(C) == 1 ? 0 : rank; }
  __device__ __forceinline__ int k_part() const { return C.split_k == 1 ? 0 : rank; }

  static __device__ __forceinline__ int steps_of(int k) { return k / tile_k(C) + (k % tile_k(C) != 0 ? 1 : 0); }
  // Where part i of the steps begins.
  static __device__ __forceinline__ int part(int k, int i) {
    if constexpr (C.split_k == 1) return i * steps_of(k);
    return steps_of(k) / C.split_k * i + min(steps_of(k) % C.split_k, i);
  }
  // A part without a step, and a K of 0, gets one behind the end of K: zeros, and no case of its own anywhere else.
  static __device__ __forceinline__ int begin_of_part(int k, int i) {
    return part(k, i) == part(k, i + 1) ? steps_of(k) + 1 : part(k, i);
  }

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / cluster_size(C); }
  __device__ __forceinline__ int stride() const { return static_cast<int>(gridDim.x) / cluster_size(C); }

  __device__ __forceinline__ Tile at(int item) const {
    const int of_matrix = tiles_m * tiles_n;
    const int batch = item / of_matrix;
    const int within = item % of_matrix;
    const int group = within / (C.raster * tiles_n);
    const int in_group = within % (C.raster * tiles_n);
    const int rows = min(tiles_m - group * C.raster, C.raster);
    const int m = group * C.raster + in_group % rows;
    const int n = in_group / rows;
    const int lane_tile = (is_swapped(C) ? n : m) * pair_size(C) + pair_rank();
    return {lane_tile * kLanes, (is_swapped(C) ? m : n) * columns(C), batch};
  }
};

}  // namespace tessera::gemm_tcgen05
