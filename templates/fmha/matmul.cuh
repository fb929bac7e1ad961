// The two products of a consumer warpgroup: S = Q K^T from shared memory, O += P V with P in registers.
//
// Both only issue instructions and close the group; the caller waits. Fragment layout of S and O (row, column) of value
// v in thread t of the warpgroup: row 16 (t / 32) + t % 32 / 4 + 8 (v / 2 % 2), column 8 (v / 4) + 2 (t % 4) + v % 2.
// The A operand of a 16-column step has the same layout over its 8 values, so P needs no shuffles: it is S, packed in
// pairs.
#pragma once

#include "ptx/math.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha {

// One key block's scores; P as the A operands of tile_n / 16 steps; O.
template <Config C>
using Scores = float[C.tile_n / 2];
template <Config C>
using Probabilities = unsigned[C.tile_n / 16][4];
template <Config C>
using Accumulator = float[v_columns(C) / 2];

template <WgmmaShape kShape>
using MmaOf = ptx::Wgmma<kShape.n, kShape.dtype, kShape.a_in_registers, kShape.b_is_mn_major, kShape.steps>;
template <Config C>
using ScoreMma = MmaOf<score_wgmma(C)>;
template <Config C>
using OutputMma = MmaOf<output_wgmma(C)>;

template <Config C>
__device__ __forceinline__ void issue_scores(Scores<C>& scores, unsigned q_slot, unsigned k_slot) {
  constexpr int kSteps = score_wgmma(C).steps;
  const unsigned long long a = k_major_descriptor(q_slot, kRowsPerWarpgroup, C.swizzle);
  const unsigned long long b = k_major_descriptor(k_slot, C.tile_n, C.swizzle);
#pragma unroll
  for (int first = 0; first < qk_columns(C) / 16; first += kSteps) {
    unsigned long long a_steps[kSteps], b_steps[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      a_steps[i] = advance_descriptor(a, k_major_step_bytes(first + i, kRowsPerWarpgroup, C.swizzle));
      b_steps[i] = advance_descriptor(b, k_major_step_bytes(first + i, C.tile_n, C.swizzle));
    }
    if (first == 0) {
      ScoreMma<C>::begin(scores, a_steps, b_steps);
    } else {
      ScoreMma<C>::mma(scores, a_steps, b_steps, 1);
    }
  }
  ptx::wgmma_commit_group();
}

template <Config C>
__device__ __forceinline__ void issue_output(Accumulator<C>& output, const Probabilities<C>& p, unsigned v_slot,
                                             int accumulate) {
  constexpr int kSteps = output_wgmma(C).steps;
  constexpr bool kIsMnMajor = C.facts.v_layout == Layout::mn_major;
  const unsigned long long b = kIsMnMajor ? mn_major_descriptor(v_slot, C.tile_n, C.swizzle)
                                          : k_major_descriptor(v_slot, v_columns(C), C.swizzle);
#pragma unroll
  for (int first = 0; first < C.tile_n / 16; first += kSteps) {
    unsigned a_steps[kSteps][4];
    unsigned long long b_steps[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) a_steps[i][j] = p[first + i][j];
      b_steps[i] = advance_descriptor(b, kIsMnMajor ? mn_major_step_bytes(first + i, C.swizzle)
                                                    : k_major_step_bytes(first + i, v_columns(C), C.swizzle));
    }
    OutputMma<C>::mma(output, a_steps, b_steps, first == 0 ? accumulate : 1);
  }
  ptx::wgmma_commit_group();
}

template <Config C>
__device__ __forceinline__ void pack(Probabilities<C>& p, const Scores<C>& scores) {
#pragma unroll
  for (int i = 0; i < C.tile_n / 4; ++i) {
    p[i / 4][i % 4] = ptx::cvt_pack<p_dtype(C)>(scores[2 * i], scores[2 * i + 1]);
  }
}

}  // namespace tessera::fmha
