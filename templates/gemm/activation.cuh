// Activations, in fp32.
#pragma once

#include "ptx/math.cuh"
#include "spec/product_facts.h"
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

// What is made of gate and up: both held to the limit, the gate from above only; NaN stays NaN.
template <ProductFacts kFacts>
__device__ __forceinline__ float gated(float gate, float up) {
  if constexpr (kFacts.gate_limit > 0) {
    constexpr float kLimit = kFacts.gate_limit;
    gate = gate > kLimit ? kLimit : gate;
    up = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
  }
  if constexpr (kFacts.gate_activation == GateActivation::gpt_oss) {
    return __fdividef(gate, 1.0f + ptx::ex2(gate * (-1.702f * 1.4426950408889634f))) * (up + 1.0f);
  } else {
    constexpr Activation kActivation = kFacts.gate_activation == GateActivation::gelu        ? Activation::gelu
                                       : kFacts.gate_activation == GateActivation::gelu_tanh ? Activation::gelu_tanh
                                                                                             : Activation::silu;
    return activate<kActivation>(gate) * up;
  }
}

}  // namespace tessera::gemm
