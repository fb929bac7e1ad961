// A gate (facts.gate_activation, facts.gate_limit) of columns of sums that stand in turn, eight or more of each, so
// that a thread has both of a column of D; each with its bias first. Of a dual gate those of a tile are one turn.
#pragma once

#include "gemm/activation.cuh"
#include "gemm/finish.cuh"
#include "gemm/matmul.cuh"
#include "gemm/params.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// Where an epilogue finds the panels of D, in place of WholeSums.
template <Config C>
struct GatedSums {
  static constexpr int kRegisters = panel_columns(C) / 2;
  static constexpr int kInterleave = gate_columns(C);
  static constexpr int kApart = kInterleave / 8;  // groups of eight columns from a gate's to up's

  Accumulators<C>& accumulators;
  const Params& p;
  const float alpha;  // of the gate
  const float alpha_up;
  const int column;  // of the sums: the tile's first
  const int group;   // whose bias it is

  // Of the column of sums that stands at `of_tile` among the tile's.
  __device__ __forceinline__ float finished(float sum, float factor, int of_tile) const {
    sum *= factor;
    if constexpr (C.facts.bias != Bias::none) {
      const int of_sums = column + of_tile;
      if (of_sums < p.n) sum += bias_of<C.facts, c_dtype(C)>(p, group, p.n, of_sums);
    }
    return sum;
  }

  __device__ __forceinline__ void operator()(float (&out)[kRegisters], int block, int panel) const {
#pragma unroll
    for (int i = 0; i < kRegisters / 4; ++i) {
      const int of_d = panel * (kRegisters / 4) + i;  // groups of eight columns
      const int gate = of_d / kApart * 2 * kApart + of_d % kApart;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int at = 8 * gate + static_cast<int>(threadIdx.x) % 4 * 2 + v % 2;
        out[4 * i + v] =
            gated<C.facts>(finished(accumulators[block][4 * gate + v], alpha, at),
                           finished(accumulators[block][4 * (gate + kApart) + v], alpha_up, at + kInterleave));
      }
    }
  }
};

}  // namespace tessera::gemm
