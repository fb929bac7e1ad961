// Neighbours of the source as fp32: sixteen of a group, or eight.
#pragma once

#include "ptx/global.cuh"
#include "ptx/narrow.cuh"
#include "tessera/spec/types.h"

namespace tessera::quantize {

// Two 16-bit floats of a register.
template <DType kDType>
__device__ __forceinline__ void unpack_pair(unsigned pair, float& low, float& high) {
  if constexpr (kDType == DType::bf16) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  } else {
    low = ptx::f32_of_low_f16(pair);
    high = ptx::f32_of_high_f16(pair);
  }
}

// So many elements as they are loaded: a register for each of fp32, or for two.
template <DType kDType, int kCount>
struct Source {
  static constexpr int kWords = kCount * dtype_bytes(kDType) / 4;
  unsigned words[kWords];
};
template <DType kDType>
using Source16 = Source<kDType, 16>;

// element: a multiple of kCount, so every load is aligned.
template <DType kDType, int kCount>
__device__ __forceinline__ void load_source(const void* source, long long element, Source<kDType, kCount>& x) {
  const char* const at = static_cast<const char*>(source) + element * dtype_bytes(kDType);
#pragma unroll
  for (int i = 0; i < x.kWords / 4; ++i) {
    const ptx::Vector4 v = ptx::ld_global_v4_stream(at + 16 * i);
    x.words[4 * i] = v.x;
    x.words[4 * i + 1] = v.y;
    x.words[4 * i + 2] = v.z;
    x.words[4 * i + 3] = v.w;
  }
}

template <DType kDType, int kCount>
__device__ __forceinline__ void to_f32(const Source<kDType, kCount>& source, float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < source.kWords; ++i) {
    if constexpr (kDType == DType::f32) {
      x[i] = __uint_as_float(source.words[i]);
    } else {
      unpack_pair<kDType>(source.words[i], x[2 * i], x[2 * i + 1]);
    }
  }
}

// The largest magnitude; NaN is left out, since max returns its other operand.
template <DType kDType>
__device__ __forceinline__ float amax16(const Source16<kDType>& x) {
  if constexpr (kDType == DType::f32) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) amax = fmaxf(amax, fabsf(__uint_as_float(x.words[i])));
    return amax;
  } else {
    unsigned amax = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = ptx::max_abs_x2<kDType>(amax, x.words[i]);
    float low, high;
    unpack_pair<kDType>(amax, low, high);
    return fmaxf(low, high);
  }
}

__device__ __forceinline__ float largest_float() { return __uint_as_float(0x7f7fffffu); }

}  // namespace tessera::quantize
