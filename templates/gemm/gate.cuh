// A gate (facts.gate_activation, facts.gate_limit) of columns of sums that stand in turn, eight or more of each, so
// that a thread has both of a column of D.
#pragma once

#include "gemm/activation.cuh"
#include "gemm/matmul.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// Where an epilogue finds the panels of D, in place of WholeSums.
template <Config C>
struct GatedSums {
  static constexpr int kRegisters = panel_columns(C) / 2;
  static constexpr int kInterleave = C.facts.interleave;
  static constexpr int kApart = kInterleave / 8;  // groups of eight columns from a gate's to up's

  Accumulators<C>& accumulators;
  const float alpha;

  __device__ __forceinline__ void operator()(float (&out)[kRegisters], int block, int panel) const {
#pragma unroll
    for (int i = 0; i < kRegisters / 4; ++i) {
      const int group = panel * (kRegisters / 4) + i;  // of eight columns of D
      const int gate = group / kApart * 2 * kApart + group % kApart;
#pragma unroll
      for (int v = 0; v < 4; ++v)
        out[4 * i + v] = gated<C.facts>(accumulators[block][4 * gate + v] * alpha,
                                        accumulators[block][4 * (gate + kApart) + v] * alpha);
    }
  }
};

}  // namespace tessera::gemm
