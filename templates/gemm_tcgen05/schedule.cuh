// Which tiles a CTA takes, and which part of K.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives cluster c of the grid the item r * clusters + c. Items walk down `raster` tiles of clusters along M before they
// go one further along N: CTAs that run at the same time form a block of D that is about square, and share the rows of
// A and B that it needs in the L2.
//
// Groups have rows of their own number, which only the device's memory tells: items of one group come after those of
// another, and a walk adds up the groups' tiles on its way. Contiguous groups stand one behind the other in A and D,
// masked ones each at the beginning of a matrix of m rows. A contiguous group's scales begin with a tile of their own.
//
// The pair of a cluster lies along the dimension whose rows are lanes; CTAs of a split K have the same tile.
#pragma once

#include "common/parts.cuh"
#include "gemm_tcgen05/params.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// A tile of this CTA: where its rows of A and B begin, in their matrices and in their tiles of scales.
struct Tile {
  int a_row;  // of D too
  int a_matrix;
  int a_scales;     // row tile of the scales
  int a_in_scales;  // row in it
  int row_end;      // of D: rows from here on are not stored
  int b_row;
  int b_matrix;
  int b_scales;
  int b_in_scales;
};

// The operand whose rows are lanes, or columns, of Tensor Memory.
template <Config C>
__device__ __forceinline__ int row_of(const Tile& t, bool is_of_lanes) {
  return is_of_lanes == is_swapped(C) ? t.b_row : t.a_row;
}
template <Config C>
__device__ __forceinline__ int matrix_of(const Tile& t, bool is_of_lanes) {
  return is_of_lanes == is_swapped(C) ? t.b_matrix : t.a_matrix;
}
template <Config C>
__device__ __forceinline__ int scales_of(const Tile& t, bool is_of_lanes) {
  return is_of_lanes == is_swapped(C) ? t.b_scales : t.a_scales;
}

template <Config C>
struct Schedule {
  const Params& p;
  const int rank;  // of this CTA in its cluster
  const int tiles_n;
  const int k_begin;  // steps along K
  const int k_end;
  int item;
  // The group, or matrix, that the item is in.
  int group = 0;
  int before = 0;  // items of those before it
  int first_row = 0;
  int rows = 0;
  int scale_tiles_before = 0;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        rank(static_cast<int>(blockIdx.x) % cluster_size(C)),
        tiles_n((params.n - 1) / (C.tile_n * C.cluster_n) + 1),
        k_begin(begin_of_part(params.k, k_part())),
        k_end(max(part(params.k, k_part() + 1), k_begin + 1)),
        item(static_cast<int>(blockIdx.x) / cluster_size(C)),
        rows(params.m) {
    // Without any group nothing stands behind the offset of its end.
    if constexpr (C.facts.grouping != Grouping::none)
      if (params.l > 0) read_group();
    find_group();
  }

  __device__ __forceinline__ int pair_rank() const { return pair_size(C) == 1 ? 0 : rank; }
  __device__ __forceinline__ int k_part() const { return C.split_k == 1 ? 0 : rank; }

  static __device__ __forceinline__ int steps_of(int k) { return k / tile_k(C) + (k % tile_k(C) != 0 ? 1 : 0); }
  static __device__ __forceinline__ int part(int k, int i) { return common::begin_of_part<C.split_k>(steps_of(k), i); }
  // A part without a step, and a K of 0, gets one behind the end of K: zeros, and no case of its own but in the
  // producer.
  static __device__ __forceinline__ int begin_of_part(int k, int i) {
    return part(k, i) == part(k, i + 1) ? steps_of(k) + 1 : part(k, i);
  }

  __device__ __forceinline__ int tiles_m() const {
    constexpr int kRows = C.tile_m * C.cluster_m;
    return rows / kRows + (rows % kRows != 0 ? 1 : 0);
  }
  // Groups hold what the caller wrote: a length below 0 counts as none, one past the end as what is there.
  __device__ __forceinline__ void read_group() {
    if constexpr (C.facts.grouping == Grouping::contiguous) {
      first_row = min(max(p.groups[group], 0), p.m);
      rows = min(max(p.groups[group + 1] - first_row, 0), p.m - first_row);
    } else {
      rows = min(max(p.groups[group], 0), p.m);
    }
  }
  __device__ __forceinline__ void find_group() {
    if constexpr (C.facts.grouping == Grouping::none) {
      group = item / (tiles_m() * tiles_n);
      before = group * tiles_m() * tiles_n;
    } else {
#pragma unroll 1
      while (item - before >= tiles_m() * tiles_n) {
        before += tiles_m() * tiles_n;
        scale_tiles_before += (rows + kTileRows - 1) / kTileRows;
        if (++group >= p.l) return;
        read_group();
      }
    }
  }

  __device__ __forceinline__ bool has_tile() const { return group < p.l; }
  __device__ __forceinline__ void advance() {
    item += static_cast<int>(gridDim.x) / cluster_size(C);
    if (has_tile()) find_group();
  }

  __device__ __forceinline__ Tile tile() const {
    const int within = item - before;
    const int raster = within / (C.raster * tiles_n);
    const int in_raster = within % (C.raster * tiles_n);
    const int height = min(tiles_m() - raster * C.raster, C.raster);
    const int m = raster * C.raster + in_raster % height;
    const int n = in_raster / height;
    // Lanes of the pair's CTAs stand side by side.
    const int row = is_swapped(C) ? m * C.tile_m : (m * C.cluster_m + pair_rank()) * C.tile_m;
    const int b_row = is_swapped(C) ? (n * C.cluster_n + pair_rank()) * C.tile_n : n * C.tile_n;
    constexpr bool kIsContiguous = C.facts.grouping == Grouping::contiguous;
    const int row_blocks = (p.m + kTileRows - 1) / kTileRows;
    return {.a_row = first_row + row,
            .a_matrix = kIsContiguous ? 0 : group,
            .a_scales = (kIsContiguous ? scale_tiles_before : group * row_blocks) + row / kTileRows,
            .a_in_scales = row % kTileRows,
            .row_end = first_row + rows,
            .b_row = b_row,
            .b_matrix = group,
            .b_scales = group * ((p.n + kTileRows - 1) / kTileRows) + b_row / kTileRows,
            .b_in_scales = b_row % kTileRows};
  }
};

}  // namespace tessera::gemm_tcgen05
