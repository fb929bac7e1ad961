// Scales of block-scaled formats as numbers.
#pragma once

#include "ptx/narrow.cuh"
#include "tessera/spec/block_scale.h"

namespace tessera::dequantize {

// What a scale's code stands for; NaN codes are NaN.
template <ScaleType kType>
__device__ __forceinline__ float scale_value(unsigned code) {
  if constexpr (kType == ScaleType::ue4m3) {
    return ptx::f32_of_low_f16(ptx::cvt_f16x2_e4m3x2(code & 0x7fu));
  } else {
    // 2^-127 is subnormal.
    return __uint_as_float(code == 0 ? 0x400000u : code == 0xff ? 0x7fffffffu : code << 23);
  }
}

}  // namespace tessera::dequantize
