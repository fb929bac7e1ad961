// The running softmax of a thread's two rows.
//
// exp(scale (s - m)) is one FFMA and one ex2 on s, with the scale times log2(e) folded in. That needs a positive scale:
// then the largest s gives the largest exponent, and a masked -inf stays -inf. Other scales (negative, zero, so small
// that the product underflows, NaN) take the slow way: the scores are multiplied first, and the scale is 1 from there
// on.
//
// The reference m need not be the row's maximum, only near it: exponents stay below kSlack, and fp32 sums and 16-bit P
// lose nothing by a factor of 2^kSlack. So m moves only when some score exceeds it by more, which is rare after a row's
// first blocks, and O is rescaled only then. All lanes of a warp decide together; until then, no lane needs the others'
// maxima. The row sums stay partial, one for each thread, until the end.
#pragma once

#include "attention/altered_scores.cuh"
#include "ptx/math.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kSmallestFoldedScale = 1e-30f;

inline constexpr float kSlack = 8.0f;  // in powers of two

struct Scale {
  float applied;  // factor on the scores before the exponential, if is_applied()
  float folded;   // factor inside the exponential, positive

  __device__ __forceinline__ explicit Scale(float softmax_scale) : applied(softmax_scale * kLog2E) {
    folded = is_applied() ? 1.0f : applied;
  }
  // Of scores that are altered first.
  struct Folded {
    float factor;
  };
  __device__ __forceinline__ explicit Scale(const Folded& whole) : applied(whole.factor), folded(whole.factor) {}
  __device__ __forceinline__ bool is_applied() const { return !(applied >= kSmallestFoldedScale); }
  // Of scores that are multiplied with `factor` besides, where they are not altered.
  __device__ __forceinline__ Scale times(float factor) const {
    Scale whole = *this;
    whole.applied *= factor;
    whole.folded = whole.is_applied() ? 1.0f : whole.applied;
    return whole;
  }
  __device__ __forceinline__ float factor() const { return is_applied() ? applied : 1.0f; }
};

template <Config C, class Params>
__device__ __forceinline__ Scale scale_of(const Params& p) {
  if constexpr (alters_scores(C.facts)) return Scale(Scale::Folded{attention::folded<C>(attention::altering_of<C>(p))});
  return Scale{p.softmax_scale};
}

__device__ __forceinline__ float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

struct RowStatistics {
  float reference[2] = {ptx::minus_infinity(), ptx::minus_infinity()};  // times log2(e); -inf: no key was visible yet
  float sum[2] = {0.0f, 0.0f};                                          // of this thread's columns

  // What is subtracted from the exponents: 0 while no key is visible, so that -inf - -inf never appears.
  __device__ __forceinline__ float subtrahend(int r) const {
    return reference[r] == ptx::minus_infinity() ? 0.0f : reference[r];
  }
  __device__ __forceinline__ bool is_exceeded(const float (&max)[2]) const {
    return max[0] > reference[0] + kSlack || max[1] > reference[1] + kSlack;
  }

  __device__ __forceinline__ bool has_blank() const {
    return reference[0] == ptx::minus_infinity() || reference[1] == ptx::minus_infinity();
  }

  // Of rows whose first scores have these maxima in this thread.
  static __device__ __forceinline__ RowStatistics begin(const float (&max)[2]) {
    return {{max_of_quad(max[0]), max_of_quad(max[1])}, {0.0f, 0.0f}};
  }
  // The references become the rows' maxima. What was summed before must then be multiplied with correction[r].
  __device__ __forceinline__ void move(const float (&max)[2], float (&correction)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float before = reference[r];
      reference[r] = fmaxf(before, max_of_quad(max[r]));
      correction[r] = ptx::ex2(before - subtrahend(r));
      sum[r] *= correction[r];
    }
  }
};

// The largest of this thread's scores in each row, times the folded scale.
template <int kCount>
__device__ __forceinline__ void find_maxima(const float (&scores)[kCount], const Scale& scale, float (&max)[2]) {
  // Two chains for each row, so that the latency of fmaxf is not waited for.
  float partial[4] = {scores[0], scores[2], scores[4], scores[6]};
#pragma unroll
  for (int v = 1; v < kCount; ++v) partial[v / 2 % 4] = fmaxf(partial[v / 2 % 4], scores[v]);
  max[0] = fmaxf(partial[0], partial[2]) * scale.folded;
  max[1] = fmaxf(partial[1], partial[3]) * scale.folded;
}

// Scores become probabilities.
template <int kCount>
__device__ __forceinline__ void exponentiate(float (&scores)[kCount], const Scale& scale, RowStatistics& rows) {
  const float subtrahend[2] = {rows.subtrahend(0), rows.subtrahend(1)};
  float sum[4] = {rows.sum[0], rows.sum[1], 0.0f, 0.0f};
#pragma unroll
  for (int v = 0; v < kCount; ++v) {
    scores[v] = ptx::ex2(fmaf(scores[v], scale.folded, -subtrahend[v / 2 % 2]));
    sum[v / 2 % 4] += scores[v];
  }
  rows.sum[0] = sum[0] + sum[2];
  rows.sum[1] = sum[1] + sum[3];
}

// Rows of O follow a moved reference.
template <int kCount>
__device__ __forceinline__ void rescale(float (&output)[kCount], const float (&correction)[2]) {
#pragma unroll
  for (int v = 0; v < kCount; ++v) output[v] *= correction[v / 2 % 2];
}

}  // namespace tessera::fmha
