// Scores that are more than a product of q and k times a scale: capped, lowered by their key's distance, or both, in
// this order. What becomes of one is a number that, times folded(), is a logit times log2(e); keys that are hidden are
// hidden afterwards.
#pragma once

#include "ptx/math.cuh"
#include "ptx/reciprocal.cuh"
#include "spec/attention_facts.h"

namespace tessera::attention {

// Factors of a product: inside of the cap, and behind it.
struct Altering {
  float inner;
  float outer;
};

// `scale`: of a product, softmax_scale where K has no factor of its own.
template <auto C, class Params>
__device__ __forceinline__ Altering altering_of(const Params& p, float scale) {
  constexpr float kLog2E = 1.4426950408889634f;
  if constexpr (C.facts.softcap == Softcap::none) return {0.0f, scale * kLog2E};
  return {2.0f * kLog2E * scale / p.softcap, p.softcap * kLog2E};
}
template <auto C, class Params>
__device__ __forceinline__ Altering altering_of(const Params& p) {
  return altering_of<C>(p, p.softmax_scale);
}
// What is left to multiply in the exponent. Positive for a positive cap, whatever the scale is.
template <auto C>
__device__ __forceinline__ float folded(const Altering& altering) {
  return C.facts.alibi == Alibi::none ? altering.outer : 1.0f;
}

// tanh(y) = 1 - 2 / (1 + exp(2 y)), within 12 * 2^-24 for every y: see reference/fmha_bound.h. tanh.approx errs by
// 8e-6, which a cap of 50 makes 6e-4 of a probability.
template <auto C>
__device__ __forceinline__ float capped(float product, const Altering& altering) {
  if constexpr (C.facts.softcap == Softcap::none) return product;
  return fmaf(-2.0f, ptx::rcp(1.0f + ptx::ex2(altering.inner * product)), 1.0f);
}

// `slope`: of the head, times log2(e). `distance`: of the key beside the query from the score's.
template <auto C>
__device__ __forceinline__ float altered(float product, const Altering& altering, float slope, float distance) {
  const float score = capped<C>(product, altering);
  if constexpr (C.facts.alibi == Alibi::none) return score;
  return fmaf(score, altering.outer, -slope * fabsf(distance));
}

// Times log2(e).
template <auto C, class Params>
__device__ __forceinline__ float slope_of(const Params& p, int head) {
  constexpr float kLog2E = 1.4426950408889634f;
  return p.alibi_slopes[min(head, p.heads_q - 1)] * kLog2E;
}

}  // namespace tessera::attention
