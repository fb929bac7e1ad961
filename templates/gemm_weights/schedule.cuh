// Which tiles a cluster takes, and which steps of 128 along K a CTA of it. The grid is persistent and the order fixed,
// so that every role walks the same tiles without a word to the others: `raster` tiles down along M before the next one
// along N, so that those which run at the same time share activations and weights in the L2.
#pragma once

#include "common/parts.cuh"
#include "gemm_weights/params.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

struct Tile {
  int row;     // first of d
  int column;  // first of d: of the weights' rows
  int batch;
};

template <Config C>
struct Schedule {
  const Params& p;
  const int rank;  // part of K
  const int tiles_m;
  const int tiles_n;
  const int items;
  const int k_begin;  // steps
  const int k_end;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        rank(C.split_k == 1 ? 0 : static_cast<int>(blockIdx.x) % C.split_k),
        tiles_m((p.m - 1) / C.tile_m + 1),
        tiles_n((p.n - 1) / C.tile_n + 1),
        items(tiles_m * tiles_n * p.l),
        k_begin(common::begin_of_part<C.split_k>(steps_of(p.k), rank)),
        k_end(common::begin_of_part<C.split_k>(steps_of(p.k), rank + 1)) {}

  static __device__ __forceinline__ int steps_of(int k) { return k / kWeightDepth + (k % kWeightDepth != 0 ? 1 : 0); }
  // Slots of the ring that a tile takes: whole rounds of the groups that share them, of which the last may be empty.
  __device__ __forceinline__ int slots() const {
    constexpr int kGroups = k_groups(C);
    return (k_end - k_begin + kGroups - 1) / kGroups * kGroups;
  }
  // Whether the ring holds all activations that the CTA multiplies, for all its tiles: they are loaded once.
  __device__ __forceinline__ bool is_resident() const {
    return is_direct(C) && tiles_m == 1 && p.l == 1 && k_end - k_begin <= C.stages;
  }
  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / C.split_k; }
  __device__ __forceinline__ int stride() const { return static_cast<int>(gridDim.x) / C.split_k; }

  __device__ __forceinline__ Tile at(int item) const {
    const int of_matrix = tiles_m * tiles_n, batch = item / of_matrix, within = item % of_matrix;
    const int raster = within / (C.raster * tiles_n), in_raster = within % (C.raster * tiles_n);
    const int height = min(tiles_m - raster * C.raster, C.raster);
    return {(raster * C.raster + in_raster % height) * C.tile_m, in_raster / height * C.tile_n, batch};
  }
};

}  // namespace tessera::gemm_weights
