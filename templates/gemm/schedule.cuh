// Which tiles a CTA takes, and which part of K.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives cluster c of the grid the item r * clusters + c. Items walk down `raster` tiles of clusters along D's rows
// before they go one further along its columns: CTAs that run at the same time form a block of D that is about square,
// and share the rows of A and B that it needs in the L2. Those that follow each other share the rows of B, of which a
// product of few rows has most: with swap_ab, where tiles went along M first, a product of 413 rows took a third
// longer.
//
// With split_k the grid has a cluster for each item, so that there is one round.
#pragma once

#include "common/parts.cuh"
#include "gemm/params.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// This CTA's place in its cluster.
template <Config C>
struct ClusterPlace {
  int rank;  // of the CTA
  int m;     // along M: B is shared with the others of this n and k
  int n;     // along N: A is shared with the others of this m and k
  int k;     // its part of K

  __device__ __forceinline__ ClusterPlace()
      : rank(cluster_size(C) == 1 ? 0 : static_cast<int>(blockIdx.x) % cluster_size(C)),
        m(rank / C.cluster_n % C.cluster_m),
        n(rank % C.cluster_n),
        k(rank / multicast_size(C)) {}

  // Among the CTAs that have the same part of K.
  __device__ __forceinline__ int rank_in_part() const { return rank - k * multicast_size(C); }
};

struct TileIndex {
  int row;     // first row of D
  int column;  // first column
  int batch;
};

template <Config C>
struct TileSchedule {
  const ClusterPlace<C> place;
  const int tiles_m;  // of clusters
  const int tiles_n;
  const int items;
  const int k_begin;  // steps along K
  const int k_end;

  __device__ __forceinline__ explicit TileSchedule(const Params& p)
      : tiles_m((p.m - 1) / (C.tile_m * C.cluster_m) + 1),
        tiles_n((p.n - 1) / (C.tile_n * C.cluster_n) + 1),
        items(tiles_m * tiles_n * p.l),
        k_begin(begin_of_part(p.k, place.k)),
        k_end(max(part(p.k, place.k + 1), k_begin + 1)) {}

  static __device__ __forceinline__ int steps_of(int k) { return k / tile_k(C) + (k % tile_k(C) != 0 ? 1 : 0); }
  static __device__ __forceinline__ int part(int k, int i) { return common::begin_of_part<C.split_k>(steps_of(k), i); }
  // A part without a step, and a K of 0, gets one behind the end of K: zeros, and no case of its own anywhere else.
  static __device__ __forceinline__ int begin_of_part(int k, int i) {
    return part(k, i) == part(k, i + 1) ? steps_of(k) + 1 : part(k, i);
  }

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / cluster_size(C); }
  __device__ __forceinline__ int stride() const { return static_cast<int>(gridDim.x) / cluster_size(C); }
  __device__ __forceinline__ int steps() const { return k_end - k_begin; }

  __device__ __forceinline__ TileIndex at(int item) const {
    const int of_matrix = tiles_m * tiles_n;
    const int batch = item / of_matrix;
    const int within = item % of_matrix;
    // Along the rows of D, which are here M, or N with swap_ab; and across.
    const int tiles_along = is_swapped(C) ? tiles_n : tiles_m, tiles_across = is_swapped(C) ? tiles_m : tiles_n;
    const int group = within / (C.raster * tiles_across);
    const int in_group = within % (C.raster * tiles_across);
    const int rows = min(tiles_along - group * C.raster, C.raster);
    const int along = group * C.raster + in_group % rows, across = in_group / rows;
    const int m = is_swapped(C) ? across : along, n = is_swapped(C) ? along : across;
    return {(m * C.cluster_m + place.m) * C.tile_m, (n * C.cluster_n + place.n) * C.tile_n, batch};
  }
};

}  // namespace tessera::gemm
