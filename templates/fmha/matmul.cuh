// The two products of a consumer warpgroup: S = Q K^T from shared memory, O += P V with P in registers.
//
// Both only issue instructions and close the group; the caller waits. Fragment layout of S and O (row, column) of value
// v in thread t of the warpgroup: row 16 (t / 32) + t % 32 / 4 + 8 (v / 2 % 2), column 8 (v / 4) + 2 (t % 4) + v % 2.
// The A operand of a 16-column step has the same layout over its 8 values, so P needs no shuffles: it is S, packed in
// pairs. That of a 32-column step of 8 bits has four columns side by side; with V's keys in another order (see
// spec/fmha_transposed.h) it is S as well, packed in fours.
#pragma once

#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha {

// One key block's scores; P as the A operands of all steps; O.
template <Config C>
using Scores = float[C.tile_n / 2];
template <Config C>
using Probabilities = unsigned[output_steps(C)][4];
template <Config C>
using Accumulator = float[v_columns(C) / 2];

template <WgmmaShape kShape>
using MmaOf = ptx::Wgmma<kShape.n, kShape.dtype, kShape.a_in_registers, kShape.b_is_mn_major, kShape.steps>;
template <Config C>
using ScoreMma = MmaOf<score_wgmma(C)>;
template <Config C>
using OutputMma = MmaOf<output_wgmma(C)>;

// `k_low`: the low word of the descriptor of K's slot; the other one is a constant.
template <Config C>
__device__ __forceinline__ void issue_scores(Scores<C>& scores, unsigned q_slot, unsigned k_low) {
  constexpr int kSteps = score_wgmma(C).steps;
  constexpr unsigned long long kHigh = k_major_descriptor(0, C.tile_n, C.swizzle) >> 32 << 32;
  const unsigned long long a = k_major_descriptor(q_slot, kRowsPerWarpgroup, C.swizzle);
  const unsigned long long b = kHigh | k_low;
#pragma unroll
  for (int first = 0; first < score_steps(C); first += kSteps) {
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
  constexpr bool kIsMnMajor = reads_mn_major_v(C);
  constexpr Swizzle kSwizzle = is_8_bit(C.facts) ? transposed_swizzle(C) : C.swizzle;
  const unsigned long long b =
      kIsMnMajor ? mn_major_descriptor(v_slot, C.tile_n, kSwizzle) : k_major_descriptor(v_slot, v_columns(C), kSwizzle);
#pragma unroll
  for (int first = 0; first < output_steps(C); first += kSteps) {
    unsigned a_steps[kSteps][4];
    unsigned long long b_steps[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) a_steps[i][j] = p[first + i][j];
      b_steps[i] = advance_descriptor(b, kIsMnMajor ? mn_major_step_bytes(first + i, kSwizzle)
                                                    : k_major_step_bytes(first + i, v_columns(C), kSwizzle));
    }
    OutputMma<C>::mma(output, a_steps, b_steps, first == 0 ? accumulate : 1);
  }
  ptx::wgmma_commit_group();
}

// 8 bits: the registers of a step.
template <Config C>
__device__ __forceinline__ void pack_step(Probabilities<C>& p, const Scores<C>& scores, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // The first or the second 16 keys, of them the first or the second row.
    const int first = 16 * step + i / 2 * 8 + i % 2 * 2;
    p[step][i] = ptx::cvt_e4m3x4(scores[first], scores[first + 1], scores[first + 4], scores[first + 5]);
  }
}

template <Config C>
__device__ __forceinline__ void pack(Probabilities<C>& p, const Scores<C>& scores) {
  if constexpr (is_8_bit(C.facts)) {
#pragma unroll
    for (int step = 0; step < output_steps(C); ++step) pack_step<C>(p, scores, step);
  } else {
#pragma unroll
    for (int i = 0; i < C.tile_n / 4; ++i) {
      p[i / 4][i % 4] = ptx::cvt_pack<p_dtype(C)>(scores[2 * i], scores[2 * i + 1]);
    }
  }
}

}  // namespace tessera::fmha
