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
// The pair of a cluster lies along m or n, a second pair along m (cluster_m 4) or n (cluster_m 2, cluster_n 2); CTAs of
// a split K have the same tile.
#pragma once

#include "common/parts.cuh"
#include "gemm/group_rows.cuh"
#include "gemm/product_params.cuh"
#include "spec/product_walk.h"
#include "tessera/spec/block_scale.h"

namespace tessera::gemm {

// A tile of this CTA: where its rows of A and B begin, in their matrices and in their tiles of scales.
struct WalkedTile {
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

template <ProductWalk W>
struct Walk {
  const ProductParams& p;
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

  __device__ __forceinline__ explicit Walk(const ProductParams& params)
      : p(params),
        rank(static_cast<int>(blockIdx.x) % cluster_size(W)),
        tiles_n((params.n - 1) / (W.tile_n * W.cluster_n) + 1),
        k_begin(begin_of_part(params.k, k_part())),
        k_end(max(part(params.k, k_part() + 1), k_begin + 1)),
        item(static_cast<int>(blockIdx.x) / cluster_size(W)),
        rows(params.m) {
    // Without any group nothing stands behind the offset of its end.
    if constexpr (W.grouping != Grouping::none)
      if (params.l > 0) read_group();
    find_group();
  }

  __device__ __forceinline__ int pair_rank() const { return pair_size(W) == 1 ? 0 : pairs(W) == 1 ? rank : rank % 2; }
  // The rank of the pair's even CTA in the cluster.
  __device__ __forceinline__ int even_rank() const { return pairs(W) == 1 ? 0 : rank & ~1; }
  // Which of the cluster's pairs this CTA is in.
  __device__ __forceinline__ int pair_index() const { return pairs(W) == 1 ? 0 : rank / 2; }
  // The CTA's place among those of the cluster along m, and along n.
  __device__ __forceinline__ int rank_m() const { return pairs(W) == 1 ? pair_rank() : rank % W.cluster_m; }
  __device__ __forceinline__ int rank_n() const {
    return pairs(W) > 1 ? rank / W.cluster_m : W.is_pair_along_n ? pair_rank() : 0;
  }
  __device__ __forceinline__ int k_part() const { return W.split_k == 1 ? 0 : rank; }

  static __device__ __forceinline__ int steps_of(int k) { return k / W.tile_k + (k % W.tile_k != 0 ? 1 : 0); }
  static __device__ __forceinline__ int part(int k, int i) { return common::begin_of_part<W.split_k>(steps_of(k), i); }
  // A part without a step, and a K of 0, gets one behind the end of K: zeros, and no case of its own but in the
  // producer.
  static __device__ __forceinline__ int begin_of_part(int k, int i) {
    return part(k, i) == part(k, i + 1) ? steps_of(k) + 1 : part(k, i);
  }

  __device__ __forceinline__ int tiles_m() const {
    constexpr int kRows = W.tile_m * W.cluster_m;
    return rows / kRows + (rows % kRows != 0 ? 1 : 0);
  }
  __device__ __forceinline__ void read_group() {
    const GroupRows of_group = group_rows<W.grouping>(p.groups, group, p.m);
    first_row = of_group.first;
    rows = of_group.count;
  }
  __device__ __forceinline__ void find_group() {
    if constexpr (W.grouping == Grouping::none) {
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
    item += static_cast<int>(gridDim.x) / cluster_size(W);
    if (has_tile()) find_group();
  }

  __device__ __forceinline__ WalkedTile tile() const {
    const int within = item - before;
    const int tiles_along = W.is_along_n ? tiles_n : tiles_m(), tiles_across = W.is_along_n ? tiles_m() : tiles_n;
    const int raster = within / (W.raster * tiles_across);
    const int in_raster = within % (W.raster * tiles_across);
    const int height = min(tiles_along - raster * W.raster, W.raster);
    const int along = raster * W.raster + in_raster % height, across = in_raster / height;
    const int m = W.is_along_n ? across : along, n = W.is_along_n ? along : across;
    // Lanes of the pair's CTAs stand side by side.
    const int row = W.is_pair_along_n ? m * W.tile_m : (m * W.cluster_m + rank_m()) * W.tile_m;
    const int b_row = W.cluster_n > 1 ? (n * W.cluster_n + rank_n()) * W.tile_n : n * W.tile_n;
    constexpr bool kIsContiguous = W.grouping == Grouping::contiguous;
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

}  // namespace tessera::gemm
