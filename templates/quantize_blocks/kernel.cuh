// The body of quantize_blocks: a block of 128 x 128 elements a CTA. In and out: see spec/quantize_blocks.h.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/global.cuh"
#include "quantize/block_factor.cuh"
#include "quantize/elements.cuh"
#include "quantize/round.cuh"
#include "spec/quantize_blocks.h"

namespace tessera::quantize_blocks {

template <DType kDType>
using Source8 = quantize::Source<kDType, kVector>;

// NaN is left out: max returns its other operand.
template <DType kDType>
__device__ __forceinline__ float amax8(const Source8<kDType>& source) {
  float x[kVector], amax = 0;
  to_f32(source, x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) amax = fmaxf(amax, fabsf(x[i]));
  return amax;
}

// Of so many neighbouring lanes, in each of them.
template <int kLanes>
__device__ __forceinline__ float over_lanes(float amax) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, distance));
  return amax;
}

// The CTA's, in every thread.
__device__ __forceinline__ float over_cta(float amax) {
  extern __shared__ float of_warp[];
  amax = over_lanes<32>(amax);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = amax;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kNumThreads / 32; ++w) amax = fmaxf(amax, of_warp[w]);
  return amax;
}

template <Config C>
__device__ __forceinline__ void kernel(const void* x, void* values, void* factors, int rows, int k) {
  common::require_legal<why_invalid(C)>();
  const int steps = (k + kScaleBlock - 1) / kScaleBlock, block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = block / steps * kScaleBlock + thread / kRowThreads, step = block % steps;
  const int column = step * kScaleBlock + thread % kRowThreads * kVector;
  const long long matrix = blockIdx.y;
  const auto row_of = [&](int visit) { return first_row + visit * kRowsAtOnce; };
  // k is whole vectors.
  const auto is_inside = [&](int visit) { return row_of(visit) < rows && column < k; };
  const auto element_of = [&](int visit) { return (matrix * rows + row_of(visit)) * k + column; };

  // All loads first: they are what takes time.
  Source8<C.dtype> sources[kVisits] = {};
#pragma unroll
  for (int i = 0; i < kVisits; ++i)
    if (is_inside(i)) quantize::load_source(x, element_of(i), sources[i]);

  float inverse = 1;
  if constexpr (C.scale_block == ScaleBlock::square) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < kVisits; ++i) amax = fmaxf(amax, amax8(sources[i]));
    const float factor = quantize::block_factor<C.scale_values>(over_cta(amax), inverse);
    if (thread == 0) static_cast<float*>(factors)[matrix * gridDim.x + block] = factor;
  }
#pragma unroll
  for (int i = 0; i < kVisits; ++i) {
    if constexpr (C.scale_block == ScaleBlock::of_row) {
      const float factor = quantize::block_factor<C.scale_values>(over_lanes<kRowThreads>(amax8(sources[i])), inverse);
      if (thread % kRowThreads == 0 && row_of(i) < rows)
        static_cast<float*>(factors)[(matrix * rows + row_of(i)) * steps + step] = factor;
    }
    if (!is_inside(i)) continue;
    float q[kVector];
    to_f32(sources[i], q);
#pragma unroll
    for (int j = 0; j < kVector; ++j) q[j] = __fmul_rn(q[j], inverse);
    unsigned words[2];
    quantize::encode_fp8_words<ValueType::e4m3>(q, words);
    ptx::st_global_v2(static_cast<char*>(values) + element_of(i), words[0], words[1]);
  }
}

}  // namespace tessera::quantize_blocks
