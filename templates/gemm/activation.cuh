// Activations, in fp32.
#pragma once

#include "ptx/math.cuh"
#include "tessera/spec/types.h"

namespace tessera::gemm {

// NaN stays NaN.
template <Activation kActivation>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kActivation == Activation::relu) {
    return x < 0.0f ? 0.0f : x;
  } else if constexpr (kActivation == Activation::gelu) {
    // x times the normal distribution's integral up to x.
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  } else if constexpr (kActivation == Activation::gelu_tanh) {
    return 0.5f * x * (1.0f + ptx::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  } else if constexpr (kActivation == Activation::silu) {
    return __fdividef(x, 1.0f + ptx::ex2(x * -1.4426950408889634f));
  } else {
    return x;
  }
}

}  // namespace tessera::gemm
