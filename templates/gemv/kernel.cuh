// The body of gemv: b into shared memory, steps along k with the next one's loads in flight, sums over lanes and warps.
// In and out: see spec/gemv.h.
#pragma once

#include "common/illegal_config.cuh"
#include "gemv/rows.cuh"
#include "gemv/vector.cuh"
#include "ptx/math.cuh"
#include "spec/gemv.h"

namespace tessera::gemv {

struct Params {
  const void* a;
  const void* sfa;
  const void* b;
  const void* sfb;
  void* c;
  const float* a_global_scale;  // may be null
  const float* b_global_scale;  // may be null
  int m;
  int k;
  long long b_stride;    // bytes from batch to batch
  long long sfb_stride;  // likewise
  float alpha;
};

// The first row of a warp's group; the others follow at kRowStep.
template <Config C>
inline constexpr int kRowStep = C.scale_form == ScaleForm::plain ? 1 : 32;
template <Config C>
__device__ __forceinline__ int first_row(int group) {
  constexpr int kGroups = kWarps / C.k_warps;
  const int cta = static_cast<int>(blockIdx.x);
  if constexpr (C.scale_form == ScaleForm::plain) return (cta * kGroups + group) * C.warp_rows;
  constexpr int kCtasOfTile = 32 / kGroups;
  return cta / kCtasOfTile * kTileRows + cta % kCtasOfTile * kGroups + group;
}

// Rows past the end read the last one, so that every address exists.
template <Config C>
__device__ __forceinline__ void point_at_rows(const Params& p, int first, RowPointers<C>& rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int of_lane = lane * lane_elements(C) / block(C);  // the first of its blocks in step 0
  constexpr int kOfByte = 8 / value_bits(C.format);
  const long long batch = blockIdx.y;
#pragma unroll
  for (int i = 0; i < C.warp_rows; ++i) {
    const int row = min(first + i * kRowStep<C>, p.m - 1);
    rows.a[i] = static_cast<const char*>(p.a) + (batch * p.m + row) * (p.k / kOfByte) + lane * kLaneBytes;
    if constexpr (C.scale_form == ScaleForm::plain)
      rows.scales[i] = static_cast<const char*>(p.sfa) + (batch * p.m + row) * (p.k / block(C)) + of_lane;
  }
  if constexpr (C.scale_form == ScaleForm::tile)
    rows.scales[0] = static_cast<const char*>(p.sfa) + scale_offset(ScaleForm::tile, p.m, p.k / block(C), batch, first,
                                                                    of_lane / kTileBlocks * kTileBlocks);
}

template <DType kDType>
__device__ __forceinline__ void store_result(void* c, long long index, float value) {
  if constexpr (kDType == DType::f32) {
    static_cast<float*>(c)[index] = value;
  } else {
    static_cast<unsigned short*>(c)[index] = static_cast<unsigned short>(ptx::cvt_pack<kDType>(value, value));
  }
}

// Lane i of the warp that stands for a group gets the sum of its row i.
template <Config C>
__device__ __forceinline__ float reduce(float (&sums)[C.warp_rows], float* of_warps) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < C.warp_rows; ++i)
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], distance);
  float mine = sums[0];
#pragma unroll
  for (int i = 1; i < C.warp_rows; ++i) mine = lane == i ? sums[i] : mine;
  if constexpr (C.k_warps > 1) {
    if (lane < C.warp_rows) of_warps[warp * C.warp_rows + lane] = mine;
    __syncthreads();
    if (warp % C.k_warps != 0 || lane >= C.warp_rows) return 0;
#pragma unroll
    for (int w = 1; w < C.k_warps; ++w) mine += of_warps[(warp + w) * C.warp_rows + lane];
  }
  return mine;
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  extern __shared__ __align__(16) unsigned char smem[];
  ptx::Vector4* const b_values = reinterpret_cast<ptx::Vector4*>(smem);
  float* const b_scales = reinterpret_cast<float*>(smem + value_bytes_of_panel(C));

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first = first_row<C>(warp / C.k_warps);
  const char* const b = static_cast<const char*>(p.b) + blockIdx.y * p.b_stride;
  const char* const sfb = static_cast<const char*>(p.sfb) + blockIdx.y * p.sfb_stride;
  RowPointers<C> rows;
  point_at_rows<C>(p, first, rows);

  constexpr int kStep = step_elements(C), kPanelSteps = C.k_panel / kStep;
  // Two steps of f16 pairs at once would spill.
  constexpr int kUnroll = products(C) == Products::bytes ? 2 : 1;
  const int steps = (p.k + kStep - 1) / kStep;
  int step = warp % C.k_warps;
  // The first step's loads are on their way while b is converted.
  Step<C> next;
  load_step<C>(rows, step, p.k, next);
  float sums[C.warp_rows] = {};
  for (int panel = 0; panel < steps; panel += kPanelSteps) {
    if (panel > 0) __syncthreads();  // the panel before was read
    load_panel<C>(b, sfb, panel * kStep, p.k, b_values, b_scales);
    __syncthreads();
    const int end = min(steps, panel + kPanelSteps);
#pragma unroll kUnroll
    for (; step < end; step += C.k_warps) {
      const Step<C> current = next;
      load_step<C>(rows, step + C.k_warps, p.k, next);
      add_step<C>(current, step - panel, b_values, b_scales, sums);
    }
  }

  const float sum = reduce<C>(sums, b_scales + C.k_panel / block(C));
  const int row = first + lane * kRowStep<C>;
  if (warp % C.k_warps != 0 || lane >= C.warp_rows || row >= p.m) return;
  // Sums of e2m1 by e2m1 are in quarters.
  float factor = products(C) == Products::floats ? p.alpha : 0.25f * p.alpha;
  if (p.a_global_scale != nullptr) factor *= *p.a_global_scale;
  if (p.b_global_scale != nullptr) factor *= *p.b_global_scale;
  store_result<C.dtype>(p.c, static_cast<long long>(blockIdx.y) * p.m + row, sum * factor);
}

}  // namespace tessera::gemv
