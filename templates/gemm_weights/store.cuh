// What stores from registers have in common: an element of D, and a gate.
//
// Sums of an instruction's rows g and g + 8 are the same thread's, so of weights whose rows are eight of the gate and
// as many of up in turn it has both of a column of D.
#pragma once

#include "gemm/activation.cuh"
#include "gemm/finish.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/narrow.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// Of the sums: with the factors of both operands, and what the weights' own scales leave out.
template <Config C>
__device__ __forceinline__ float factor_of(const Params& p) {
  float alpha = p.alpha * left_out_factor(weights(C), a_dtype(C));
  if (is_widened(C) && p.scale_a != nullptr) alpha *= *p.scale_a;
  if ((is_widened(C) || C.facts.b_type == OperandType::nvfp4) && p.scale_b != nullptr) alpha *= *p.scale_b;
  return alpha;
}

template <Config C>
__device__ __forceinline__ void store_element(const Params& p, long long at, float value) {
  if constexpr (C.facts.d_dtype == DType::f32) {
    static_cast<float*>(p.d_pointer)[at] = value;
  } else {
    static_cast<unsigned short*>(p.d_pointer)[at] =
        static_cast<unsigned short>(ptx::cvt_pack<C.facts.d_dtype>(value, 0.0f));
  }
}

// Of a lane pairs of rows of D, each of a column; they leave as pairs of columns, each of a row: eight rows from
// tile.row + `octet` on, and eight columns for each pair, from `column` on. All lanes.
template <Config C, int kPairs>
__device__ __forceinline__ void store_transposed(const Params& p, const float (&pairs)[kPairs][2], int column,
                                                 int column_end, int octet, const Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, of_m = tile.row + octet + lane / 4;
  const int first = column + lane % 4 * 2;
  unsigned short* const to =
      static_cast<unsigned short*>(p.d_pointer) + tile.batch * p.d_stride_l + of_m * p.ldd + first;
  const bool is_aligned = reinterpret_cast<unsigned long long>(to) % 4 == 0;  // rows may begin anywhere
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const unsigned word = ptx::movmatrix_trans(ptx::cvt_pack<C.facts.d_dtype>(pairs[i][0], pairs[i][1]));
    const int left = of_m < tile.row_end ? column_end - first - 8 * i : 0;
    if (left > 1 && is_aligned) {
      *reinterpret_cast<unsigned*>(to + 8 * i) = word;
    } else {
      if (left > 0) to[8 * i] = static_cast<unsigned short>(word);
      if (left > 1) to[8 * i + 1] = static_cast<unsigned short>(word >> 16);
    }
  }
}

// Of 16 rows of weights from `row` on and eight rows of D from `tile.row` + `octet` on: four sums of a lane, two rows
// of D of the gate, then of up.
template <Config C>
__device__ __forceinline__ void store_gated(const Params& p, const float* sums, float alpha, int row, int octet,
                                            const Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, of_m = tile.row + octet + lane % 4 * 2;
  if (row >= p.n) return;
  float bias_gate = 0.0f, bias_up = 0.0f;
  if constexpr (C.facts.bias != Bias::none) {
    bias_gate = gemm::bias_of<C.facts, C.facts.d_dtype>(p, tile.b_batch, p.n, row + lane / 4);
    bias_up = gemm::bias_of<C.facts, C.facts.d_dtype>(p, tile.b_batch, p.n, row + kGateRows + lane / 4);
  }
  float pair[1][2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    pair[0][i] = gemm::gated<C.facts>(sums[i] * alpha + bias_gate, sums[i + 2] * alpha + bias_up);
  if constexpr (stores_pairs(C)) {
    store_transposed<C>(p, pair, row / 2, p.n / 2, octet, tile);
  } else {
    const long long at = tile.batch * p.d_stride_l + of_m * p.ldd + row / 2 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (of_m + i < tile.row_end) store_element<C>(p, at + i * p.ldd, pair[0][i]);
  }
}

// A warp's sums of 16 rows of weights from `row` on, with eight rows of D in each octet. For the epilogue N is M: D
// leaves transposed.
template <Config C>
__device__ __forceinline__ void store_sums(const Params& p, const float (&sums)[C.tile_m / 8][4], int row,
                                           const Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float alpha = factor_of<C>(p);
  const gemm::Params params{p.d,     p.d,          p.d,   p.d_pointer,  p.c,          p.bias, nullptr,
                            nullptr, {},           {},    p.n,          tile.row_end, p.k,    p.l,
                            p.ldd,   p.d_stride_l, p.ldc, p.c_stride_l, alpha,        p.beta};
#pragma unroll
  for (int i = 0; i < C.tile_m / 8; ++i) {
    if constexpr (is_gated(C)) {
      store_gated<C>(p, sums[i], alpha, row, i * 8, tile);
    } else {
      const int of_m = tile.row + i * 8 + lane % 4 * 2;
      float pairs[2][2];
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int of_n = row + lane / 4 + v * 8;
        pairs[v][0] = sums[i][2 * v], pairs[v][1] = sums[i][2 * v + 1];
        gemm::finish_pair<C.facts, gemm::c_dtype(epilogue_config(C)), true>(pairs[v], params, alpha, of_n, p.n, of_m,
                                                                            tile.batch, tile.b_batch);
        if constexpr (!stores_pairs(C)) {
          const long long at = tile.batch * p.d_stride_l + of_m * p.ldd + of_n;
          if (of_n < p.n && of_m < tile.row_end) store_element<C>(p, at, pairs[v][0]);
          if (of_n < p.n && of_m + 1 < tile.row_end) store_element<C>(p, at + p.ldd, pairs[v][1]);
        }
      }
      if constexpr (stores_pairs(C)) store_transposed<C>(p, pairs, row, p.n, i * 8, tile);
    }
  }
}

}  // namespace tessera::gemm_weights
