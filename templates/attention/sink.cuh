// A head's sink: a logit that no value belongs to. It joins the sum that o is divided by, once: where keys are split,
// when parts are merged. The logarithm of the sum is without it, so that parts with different keys can still be merged.
#pragma once

#include "ptx/math.cuh"

namespace tessera::attention {

// What it adds to a row's sum, in which `subtrahend` (times log2(e)) was subtracted from all exponents. One that is far
// above all scores makes the sum infinite, and o 0.
__device__ __forceinline__ float sink_share(float sink, float subtrahend) {
  constexpr float kLog2E = 1.4426950408889634f;
  return ptx::ex2(sink * kLog2E - subtrahend);
}

}  // namespace tessera::attention
