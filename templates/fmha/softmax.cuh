// The running softmax of a thread's two rows: exponentials against the largest score so far.
//
// exp(scale (s - m)) is one FFMA and one ex2 on s, with the scale times log2(e) folded in. That needs a positive scale:
// then the largest s gives the largest exponent, and a masked -inf stays -inf. Other scales (negative, zero, so small
// that the product underflows, NaN) take the slow way: the scores are multiplied first, and the scale is 1 from there
// on.
//
// A row's maximum is common to the four threads that hold its columns; its sum stays partial until the end.
#pragma once

#include "ptx/math.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kSmallestFoldedScale = 1e-30f;

struct Scale {
  float folded;   // factor inside the exponential, positive
  float applied;  // factor on the scores before it
  bool is_applied;

  __device__ __forceinline__ explicit Scale(float softmax_scale) {
    const float scale = softmax_scale * kLog2E;
    is_applied = !(scale >= kSmallestFoldedScale);
    folded = is_applied ? 1.0f : scale;
    applied = scale;
  }
};

struct RowStatistics {
  float max[2] = {ptx::minus_infinity(), ptx::minus_infinity()};  // in units of the (applied) scores
  float sum[2] = {0.0f, 0.0f};                                    // of this thread's columns

  // What is subtracted from the exponents: 0 while no key is visible, so that -inf - -inf never appears.
  __device__ __forceinline__ float reference(int r, const Scale& scale) const {
    return max[r] == ptx::minus_infinity() ? 0.0f : max[r] * scale.folded;
  }
};

__device__ __forceinline__ float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Scores become probabilities; correction[r] is what everything summed before must be multiplied with.
template <int kCount>
__device__ __forceinline__ void update_softmax(float (&scores)[kCount], RowStatistics& rows, const Scale& scale,
                                               float (&correction)[2]) {
  // Two chains for each row, so that the latency of fmaxf is not waited for.
  float partial[4] = {rows.max[0], rows.max[1], scores[4], scores[6]};
#pragma unroll
  for (int v = 0; v < kCount; ++v)
    partial[v / 2 % 2 + v / 4 % 2 * 2] = fmaxf(partial[v / 2 % 2 + v / 4 % 2 * 2], scores[v]);
  float reference[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float before = rows.max[r] * scale.folded;
    rows.max[r] = max_of_quad(fmaxf(partial[r], partial[r + 2]));
    reference[r] = rows.reference(r, scale);
    correction[r] = ptx::ex2(before - reference[r]);
  }
  float sum[4] = {rows.sum[0] * correction[0], rows.sum[1] * correction[1], 0.0f, 0.0f};
#pragma unroll
  for (int v = 0; v < kCount; ++v) {
    scores[v] = ptx::ex2(fmaf(scores[v], scale.folded, -reference[v / 2 % 2]));
    sum[v / 2 % 2 + v / 4 % 2 * 2] += scores[v];
  }
  rows.sum[0] = sum[0] + sum[2];
  rows.sum[1] = sum[1] + sum[3];
}

// Rows of O follow the new maximum.
template <int kCount>
__device__ __forceinline__ void rescale(float (&output)[kCount], const float (&correction)[2]) {
#pragma unroll
  for (int v = 0; v < kCount; ++v) output[v] *= correction[v / 2 % 2];
}

}  // namespace tessera::fmha
