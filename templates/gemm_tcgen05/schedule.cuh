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

// Whether each CTA of a pair must mend scales past K before they are copied, and so has a barrier for its own.
template <Config C>
__device__ __forceinline__ bool are_scales_apart(int k) {
  return has_scale_barriers(C) && k % (scale_block(C) * kTileBlocks) != 0;
}

// Where a tile's sums begin in Tensor Memory: tiles take the accumulators in turn.
template <Config C>
__device__ __forceinline__ unsigned first_sum(int slot, unsigned parity) {
  return (do_sums_overlap(C) ? parity : static_cast<unsigned>(slot)) * sum_stride(C);
}

}  // namespace tessera::gemm_tcgen05
