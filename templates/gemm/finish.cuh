// What becomes of a sum before it is rounded, in every family of products: alpha, beta c, bias, activation.
#pragma once

#include "gemm/activation.cuh"
#include "ptx/math.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

template <DType kDType>
__device__ __forceinline__ float load_element(const void* base, long long index) {
  if constexpr (kDType == DType::f32) {
    return static_cast<const float*>(base)[index];
  } else {
    return ptx::cvt_f32<kDType>(static_cast<const unsigned short*>(base)[index]);
  }
}

// alpha, with the factors of both operands.
template <bool kHasTensorScales, class AnyParams>
__device__ __forceinline__ float scaled_alpha(const AnyParams& p, const float* scale_b) {
  float alpha = p.alpha;
  if constexpr (kHasTensorScales) {
    if (p.scale_a != nullptr) alpha *= *p.scale_a;
    if (scale_b != nullptr) alpha *= *scale_b;
  }
  return alpha;
}

// The bias of a column of D, of `columns`: of all rows, or of those of a group.
template <ProductFacts kFacts, DType kAddendType, class AnyParams>
__device__ __forceinline__ float bias_of(const AnyParams& p, int group, int columns, int column) {
  const long long row = kFacts.bias == Bias::group ? static_cast<long long>(group) * columns : 0;
  return load_element<kAddendType>(p.bias, row + column);
}

// What follows the addend of a sum: bias and activation. `row` and `column` are places in D, or in its transpose.
template <ProductFacts kFacts, DType kAddendType, bool kIsTransposed, class AnyParams>
__device__ __forceinline__ float finish_sum(float x, const AnyParams& p, int row, int column, int group) {
  if constexpr (kFacts.bias != Bias::none) {
    const int of_d = kIsTransposed ? row : column, columns = kIsTransposed ? p.m : p.n;
    if (of_d < columns) x += bias_of<kFacts, kAddendType>(p, group, columns, of_d);
  }
  return activate<kFacts.activation>(x);
}

// Two neighbours of a row, whose rows end at `row_end`. Also called for places outside D: nothing is read for them, and
// nothing comes of them. `group`: whose bias it is.
template <ProductFacts kFacts, DType kAddendType, bool kIsTransposed, class AnyParams>
__device__ __forceinline__ void finish_pair(float (&pair)[2], const AnyParams& p, float alpha, int row, int row_end,
                                            int column, int batch, int group) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pair[i] *= alpha;
    const bool is_inside = row < row_end && column + i < p.n;
    if constexpr (kFacts.c == Addend::matrix) {
      const long long place = kIsTransposed ? (column + i) * p.ldc + row : row * p.ldc + column + i;
      if (is_inside && p.beta != 0.0f) pair[i] += p.beta * load_element<kAddendType>(p.c, batch * p.c_stride_l + place);
    }
    pair[i] = finish_sum<kFacts, kAddendType, kIsTransposed>(pair[i], p, row, column + i, group);
  }
}

}  // namespace tessera::gemm
