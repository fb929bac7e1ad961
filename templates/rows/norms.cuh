// RMSNorm and LayerNorm of rows in registers, and when their weights are loaded.
#pragma once

#include "rows/row.cuh"

namespace tessera::rows {

// A norm's weights or biases.
template <Config C>
struct Weights {
  Raw<C.dtype> of[vectors_of_thread(C)];
};

template <Config C, int kNumber>
__device__ __forceinline__ void load_weights(const void* from, const Place& place, Weights<C>& weights) {
  constexpr RowStep S = C.chain.steps[kNumber];
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int column = column_of<C>(place, j);
    weights.of[j] = zeros8<C.dtype>();
    if (is_in<C, S>(place, j)) weights.of[j] = load8<C.dtype>(from, column - S.first);
  }
}

// The weights and biases of step kNumber, loaded now or taken from what was loaded before x.
template <Config C, int kNumber>
__device__ __forceinline__ void take_weights(const StepParams& p, const Place& place, const Values<C>& x,
                                             Weights<C>& weights, Weights<C>& biases) {
  constexpr RowStep S = C.chain.steps[kNumber];
  if constexpr (loads_weights_first(C)) {
    constexpr int kFirst = weights_before(C.chain, kNumber);
#pragma unroll
    for (int j = 0; j < vectors_of_thread(C); ++j) {
      if constexpr (S.has_weight) weights.of[j] = x.weights[kFirst][j];
      if constexpr (S.kind == RowPart::layernorm) biases.of[j] = x.weights[kFirst + (S.has_weight ? 1 : 0)][j];
    }
  } else {
    if constexpr (S.has_weight) load_weights<C, kNumber>(p.in, place, weights);
    if constexpr (S.kind == RowPart::layernorm) load_weights<C, kNumber>(p.in2, place, biases);
  }
}

// Of step kNumber and those behind it.
template <Config C, int kNumber>
__device__ __forceinline__ void load_first_weights(const Params& p, const Place& place, Values<C>& x) {
  if constexpr (kNumber < step_count(C.chain)) {
    constexpr RowStep S = C.chain.steps[kNumber];
    if constexpr (weights_of_step(S) > 0) {
      constexpr int kFirst = weights_before(C.chain, kNumber);
      const StepParams& step = p.steps[kNumber];
      Weights<C> loaded[2];
      if constexpr (S.has_weight) load_weights<C, kNumber>(step.in, place, loaded[0]);
      if constexpr (S.kind == RowPart::layernorm) load_weights<C, kNumber>(step.in2, place, loaded[1]);
#pragma unroll
      for (int j = 0; j < vectors_of_thread(C); ++j) {
        if constexpr (S.has_weight) x.weights[kFirst][j] = loaded[0].of[j];
        if constexpr (S.kind == RowPart::layernorm) x.weights[kFirst + (S.has_weight ? 1 : 0)][j] = loaded[1].of[j];
      }
    }
    load_first_weights<C, kNumber + 1>(p, place, x);
  }
}

// v * inverse * weight, + bias.
template <Config C, int kNumber>
__device__ __forceinline__ void scale_by_weight(const Weights<C>& weights, const Weights<C>& biases, const Place& place,
                                                float inverse, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    if (!is_in<C, S>(place, j)) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      x.v[j][i] *= inverse;
      if constexpr (S.has_weight) x.v[j][i] *= element<C.dtype>(weights.of[j], i) + (S.adds_one ? 1.0f : 0.0f);
      if constexpr (S.kind == RowPart::layernorm) x.v[j][i] += element<C.dtype>(biases.of[j], i);
    }
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ float sum_of_squares(const Place& place, const Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum = fmaf(x.v[j][i], x.v[j][i], sum);
    }
  return sum;
}

// The row once more from what was read: between a norm's sum and its use it takes no other registers.
template <Config C>
__device__ __forceinline__ void read_again(Values<C>& x) {
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
#pragma unroll
    for (unsigned& word : x.kept[j].words) word = static_cast<unsigned>(ptx::forget(static_cast<int>(word)));
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = element<C.dtype>(x.kept[j], i);
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void rmsnorm(const StepParams& p, const Place& place, float eps, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  Weights<C> weights = {}, none = {};
  if constexpr (loads_weights_early(C)) take_weights<C, kNumber>(p, place, x, weights, none);
  const float sum = over_row<C, sums_before(C.chain, kNumber)>(place, sum_of_squares<C, kNumber>(place, x));
  const float inverse = rsqrtf(fmaf(sum, 1.0f / static_cast<float>(width(S, C.columns)), eps));
  if constexpr (!loads_weights_early(C)) take_weights<C, kNumber>(p, place, x, weights, none);
  if constexpr (keeps_as_read(C) && sums_before(C.chain, kNumber) == 0) read_again<C>(x);
  scale_by_weight<C, kNumber>(weights, none, place, inverse, x);
}

template <Config C, int kNumber>
__device__ __forceinline__ void layernorm(const StepParams& p, const Place& place, float eps, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr float kShare = 1.0f / static_cast<float>(width(S, C.columns));
  Weights<C> weights = {}, biases;
  if constexpr (loads_weights_early(C)) take_weights<C, kNumber>(p, place, x, weights, biases);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum += x.v[j][i];
    }
  const float mean = over_row<C, sums_before(C.chain, kNumber)>(place, sum) * kShare;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x.v[j][i] -= mean;
    }
  const float squares = over_row<C, sums_before(C.chain, kNumber) + 1>(place, sum_of_squares<C, kNumber>(place, x));
  if constexpr (!loads_weights_early(C)) take_weights<C, kNumber>(p, place, x, weights, biases);
  scale_by_weight<C, kNumber>(weights, biases, place, rsqrtf(fmaf(squares, kShare, eps)), x);
}

}  // namespace tessera::rows
