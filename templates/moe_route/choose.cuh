// A token's experts: a warp has its logits in registers, vector j of a lane from expert (32 j + lane) 8 on.
#pragma once

#include "ptx/warp_reduce.cuh"
#include "rows/steps.cuh"
#include "spec/moe_route.h"

namespace tessera::moe_route {

struct Params {
  const void* logits;
  long long logits_stride_m;
  const float* bias;
  int* topk_experts;
  float* topk_weights;
  int* groups;
  int* counts;
  int* indices;
  float* row_weights;
  int* slots;
  int* workspace;
  float scale;
  int m;
  int rows;
};

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % kWarp; }

// The first expert of a lane's vector.
__device__ __forceinline__ int expert_of(int vector) { return (vector * kWarp + lane_of_thread()) * kVector; }
template <Config C>
__device__ __forceinline__ bool is_vector(int vector) {
  return C.experts % (kWarp * kVector) == 0 || expert_of(vector) < C.experts;
}

template <Config C>
using Logits = float[vectors_of_lane(C)][kVector];

// Behind the last token nothing is read.
template <Config C>
__device__ __forceinline__ void load_logits(const Params& p, int token, rows::Raw<C.dtype> (&raw)[vectors_of_lane(C)]) {
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j) {
    raw[j] = rows::zeros8<C.dtype>();
    if (token < p.m && is_vector<C>(j))
      raw[j] = rows::load8<C.dtype>(p.logits, token * p.logits_stride_m + expert_of(j));
  }
}

// The largest, or the sum, of a warp's values; in a fixed order.
template <bool kIsMax>
__device__ __forceinline__ float over_warp(float mine) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, mine, distance);
    mine = kIsMax ? fmaxf(mine, other) : mine + other;
  }
  return mine;
}

// Softmax: its numerators, and what they are multiplied by.
template <Config C>
__device__ __forceinline__ float exponentials(Logits<C>& v) {
  float most = ptx::minus_infinity(), sum = 0;
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i) most = is_vector<C>(j) ? fmaxf(most, v[j][i]) : most;
  most = over_warp<true>(most);
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      v[j][i] = is_vector<C>(j) ? ptx::ex2((v[j][i] - most) * 1.4426950408889634f) : 0.0f;
      sum += v[j][i];
    }
  return ptx::rcp(over_warp<false>(sum));
}

template <Config C>
__device__ __forceinline__ void to_scores(Logits<C>& v) {
  if constexpr (C.scoring == Scoring::softmax) {
    const float inverse = exponentials<C>(v);
#pragma unroll
    for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
      for (int i = 0; i < kVector; ++i) v[j][i] *= inverse;
  } else {
    constexpr RowPart kPart = C.scoring == Scoring::sigmoid ? RowPart::sigmoid : RowPart::sqrt_softplus;
#pragma unroll
    for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
      for (int i = 0; i < kVector; ++i) v[j][i] = rows::elementwise<RowStep{.kind = kPart}>(v[j][i]);
  }
}

// Whole numbers in the order of floating-point ones; above 1, which is a NaN's, and 0, which is no expert's any more.
__device__ __forceinline__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes +0
  return x != x ? 1u : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

template <Config C>
__device__ __forceinline__ void keys_of(const Logits<C>& v, unsigned (&keys)[vectors_of_lane(C)][kVector]) {
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i) keys[j][i] = is_vector<C>(j) ? key_of(v[j][i]) : 0u;
}

// The sum of the two largest of each group, as a key, for the group of a lane's vector.
template <Config C>
__device__ __forceinline__ void keys_of_groups(const Logits<C>& v, unsigned (&keys)[vectors_of_lane(C)]) {
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j) {
    float first = ptx::minus_infinity(), second = first;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      second = fmaxf(second, fminf(first, v[j][i]));
      first = fmaxf(first, v[j][i]);
    }
#pragma unroll
    for (int distance = 1; distance < lanes_of_group(C); distance *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, first, distance);
      second = fmaxf(fmaxf(second, __shfl_xor_sync(kAllLanes, second, distance)), fminf(first, other));
      first = fmaxf(first, other);
    }
    keys[j] = is_vector<C>(j) ? key_of(first + second) : 0u;
  }
}

// Experts of all but the topk_groups largest groups are none any more.
template <Config C>
__device__ __forceinline__ void drop_groups(const Logits<C>& v, unsigned (&keys)[vectors_of_lane(C)][kVector]) {
  constexpr int kLanes = lanes_of_group(C);
  unsigned of_group[vectors_of_lane(C)];
  keys_of_groups<C>(v, of_group);
  int larger[vectors_of_lane(C)] = {};
#pragma unroll
  for (int group = 0; group < C.expert_groups; ++group) {
    const unsigned key = __shfl_sync(kAllLanes, of_group[group * kLanes / kWarp], group * kLanes % kWarp);
#pragma unroll
    for (int j = 0; j < vectors_of_lane(C); ++j) {
      const int own = (j * kWarp + lane_of_thread()) / kLanes;
      if (key > of_group[j] || (key == of_group[j] && group < own)) ++larger[j];
    }
  }
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      if (larger[j] >= C.topk_groups) keys[j][i] = 0;
}

// What lane i has of the token: its i-th expert and the weight.
struct Chosen {
  int expert;
  float weight;
};

// The expert with the largest key, and its score. It is none of those that are left then.
template <Config C>
__device__ __forceinline__ Chosen take_largest(const Logits<C>& scores, unsigned (&keys)[vectors_of_lane(C)][kVector]) {
  unsigned most = 0;
  int expert = 0;
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      if (keys[j][i] > most) {
        most = keys[j][i];
        expert = expert_of(j) + i;
      }
  const unsigned of_warp = ptx::redux_max(most);
  const int first = static_cast<int>(ptx::redux_min(most == of_warp ? static_cast<unsigned>(expert) : kAllLanes));
  float score = 0;
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      if (expert_of(j) + i == first) {
        score = scores[j][i];
        keys[j][i] = 0;
      }
  return {first, __shfl_sync(kAllLanes, score, first / kVector % kWarp)};
}

template <Config C>
__device__ __forceinline__ Chosen choose(const Params& p, const rows::Raw<C.dtype> (&raw)[vectors_of_lane(C)]) {
  Logits<C> v;
  unsigned keys[vectors_of_lane(C)][kVector];
#pragma unroll
  for (int j = 0; j < vectors_of_lane(C); ++j)
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[j][i] = rows::element<C.dtype>(raw[j], i);
  if constexpr (C.bias == Bias::none && !has_expert_groups(C)) keys_of<C>(v, keys);
  to_scores<C>(v);
  if constexpr (C.bias != Bias::none) {
    Logits<C> biased;
#pragma unroll
    for (int j = 0; j < vectors_of_lane(C); ++j) {
      rows::Raw<DType::f32> bias = rows::zeros8<DType::f32>();
      if (is_vector<C>(j)) bias = rows::load8<DType::f32>(p.bias, expert_of(j));
#pragma unroll
      for (int i = 0; i < kVector; ++i) biased[j][i] = v[j][i] + rows::element<DType::f32>(bias, i);
    }
    keys_of<C>(biased, keys);
    if constexpr (has_expert_groups(C)) drop_groups<C>(biased, keys);
  } else if constexpr (has_expert_groups(C)) {
    keys_of<C>(v, keys);
    drop_groups<C>(v, keys);
  }
  Chosen mine{0, 0.0f};
#pragma unroll 1
  for (int slot = 0; slot < C.top_k; ++slot) {
    const Chosen chosen = take_largest<C>(v, keys);
    if (lane_of_thread() == slot) mine = chosen;
  }
  if constexpr (C.renormalize == Renormalize::on) {
    const float sum = over_warp<false>(mine.weight) + 1e-20f;
    mine.weight = __fdiv_rn(mine.weight, sum);
  }
  mine.weight *= p.scale;
  return mine;
}

}  // namespace tessera::moe_route
