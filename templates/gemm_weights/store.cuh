// What stores from registers have in common: an element of D, and a gate.
//
// Sums of an instruction's rows g and g + 8 are the same thread's, so of weights whose rows are eight of the gate and
// as many of up in turn it has both of a column of D.
#pragma once

#include "gemm/activation.cuh"
#include "gemm/finish.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
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

// Of 16 rows of weights from `row` on and eight rows of D from `tile.row` + `octet` on: four sums of a lane, two rows
// of D of the gate, then of up.
template <Config C>
__device__ __forceinline__ void store_gated(const Params& p, const float* sums, float alpha, int row, int octet,
                                            const Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, of_m = tile.row + octet + lane % 4 * 2;
  const long long at = tile.batch * p.d_stride_l + of_m * p.ldd + row / 2 + lane / 4;
  if (row >= p.n) return;
  float bias_gate = 0.0f, bias_up = 0.0f;
  if constexpr (C.facts.bias != Bias::none) {
    bias_gate = gemm::bias_of<C.facts, C.facts.d_dtype>(p, tile.b_batch, p.n, row + lane / 4);
    bias_up = gemm::bias_of<C.facts, C.facts.d_dtype>(p, tile.b_batch, p.n, row + kGateRows + lane / 4);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (of_m + i < tile.row_end)
      store_element<C>(p, at + i * p.ldd,
                       gemm::gated<C.facts>(sums[i] * alpha + bias_gate, sums[i + 2] * alpha + bias_up));
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
#pragma unroll
      for (int v = 0; v < 4; v += 2) {
        const int of_n = row + lane / 4 + v * 4, of_m = tile.row + i * 8 + lane % 4 * 2;
        float pair[2] = {sums[i][v], sums[i][v + 1]};
        gemm::finish_pair<C.facts, gemm::c_dtype(epilogue_config(C)), true>(pair, params, alpha, of_n, p.n, of_m,
                                                                            tile.batch, tile.b_batch);
        const long long at = tile.batch * p.d_stride_l + of_m * p.ldd + of_n;
        if (of_n < p.n && of_m < tile.row_end) store_element<C>(p, at, pair[0]);
        if (of_n < p.n && of_m + 1 < tile.row_end) store_element<C>(p, at + p.ldd, pair[1]);
      }
    }
  }
}

}  // namespace tessera::gemm_weights
