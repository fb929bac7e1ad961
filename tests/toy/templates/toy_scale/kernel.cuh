#pragma once

#include "spec/toy_scale.h"

namespace tessera::toy_scale {

template <Config C>
__device__ __forceinline__ void kernel(const float* x, float* y, int n, float alpha) {
  static_assert(why_invalid(C).ok());
  const int first = (static_cast<int>(blockIdx.x) * C.threads + static_cast<int>(threadIdx.x)) * C.elements;
#pragma unroll
  for (int i = first; i < first + C.elements; ++i) {
    if (i >= n) return;
    const float scaled = alpha * x[i];
    y[i] = C.activation == Activation::relu && scaled < 0.0f ? 0.0f : scaled;
  }
}

}  // namespace tessera::toy_scale
