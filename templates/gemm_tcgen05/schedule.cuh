// Which tiles a CTA takes, and which part of K: the walk of gemm/product_walk.cuh. The pair of a cluster lies along the
// dimension whose rows are lanes.
#pragma once

#include "gemm/product_walk.cuh"
#include "gemm_tcgen05/params.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

template <Config C>
using Schedule = gemm::Walk<walk(C)>;
using Tile = gemm::WalkedTile;

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

}  // namespace tessera::gemm_tcgen05
