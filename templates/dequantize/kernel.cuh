// The body of dequantize: 16 bytes of y a lane and round. In and out: see spec/dequantize.h.
#pragma once

#include "common/illegal_config.cuh"
#include "dequantize/scale_value.cuh"
#include "dequantize/six_bits.cuh"
#include "ptx/e2m1.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "spec/block_map.h"
#include "spec/dequantize.h"

namespace tessera::dequantize {

// Elements that a lane writes at a time: 16 bytes, so that a warp's stores fill whole lines.
template <Config C>
inline constexpr int kLaneElements = 16 / dtype_bytes(C.dtype);

// kLaneElements codes as they lie in memory: 2 or 4 bytes of e2m1, 3 or 6 of six bits, 4 or 8 of fp8.
template <Config C>
__device__ __forceinline__ void load_codes(const void* values, long long element, unsigned (&words)[2]) {
  if constexpr (value_bits(C.format) == 6) {
    load_six_bits<kLaneElements<C>>(values, element, words);
    return;
  }
  constexpr int kBytes = kLaneElements<C> * value_bits(C.format) / 8;
  const char* const at = static_cast<const char*>(values) + element * value_bits(C.format) / 8;
  if constexpr (kBytes == 8) {
    ptx::ld_global_v2(at, words[0], words[1]);
  } else {
    words[0] = kBytes == 4 ? ptx::ld_global_u32(at) : ptx::ld_global_u16(at);
  }
}

// The same as pairs of f16.
template <Config C>
__device__ __forceinline__ void decode(const unsigned (&words)[2], unsigned (&pairs)[kLaneElements<C> / 2]) {
  if constexpr (value_type(C.format) == ValueType::e2m1) {
    unsigned four[4];
    ptx::decode_e2m1x8<C.conversion>(words[0], four);
#pragma unroll
    for (int i = 0; i < kLaneElements<C> / 2; ++i) pairs[i] = four[i];
  } else if constexpr (value_bits(C.format) == 6) {
#pragma unroll
    for (int i = 0; i < kLaneElements<C> / 2; ++i)
      pairs[i] = decode_six_bit_pair<value_type(C.format), C.conversion>(six_bit_pair(words, i));
  } else {
#pragma unroll
    for (int i = 0; i < kLaneElements<C> / 2; ++i) {
      const unsigned two = words[i / 2] >> (i % 2 * 16);
      pairs[i] = value_type(C.format) == ValueType::e4m3 ? ptx::cvt_f16x2_e4m3x2(two) : ptx::cvt_f16x2_e5m2x2(two);
    }
  }
}

template <Config C>
__device__ __forceinline__ void store_elements(void* y, long long element,
                                               const unsigned (&pairs)[kLaneElements<C> / 2], float factor) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < kLaneElements<C> / 2; ++i) {
    const float low = __fmul_rn(ptx::f32_of_low_f16(pairs[i]), factor);
    const float high = __fmul_rn(ptx::f32_of_high_f16(pairs[i]), factor);
    if constexpr (C.dtype == DType::f32) {
      words[2 * i] = __float_as_uint(low);
      words[2 * i + 1] = __float_as_uint(high);
    } else {
      words[i] = ptx::cvt_pack<C.dtype>(low, high);
    }
  }
  ptx::st_global_v4(static_cast<char*>(y) + element * dtype_bytes(C.dtype), {words[0], words[1], words[2], words[3]});
}

// The place of group `group` (0 to 31) of this thread's warp.
template <Config C>
__device__ __forceinline__ BlockPlace place_of_group(int group, long long groups, int rows, int k) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if constexpr (C.scale_form == ScaleForm::plain) {
    return plain_place(C.format, static_cast<long long>(blockIdx.x) * C.threads + warp * 32 + group, groups);
  } else {
    constexpr int kUnits = row_units(C.format);
    const int unit = static_cast<int>(blockIdx.x) % kUnits, k_tiles = static_cast<int>(blockIdx.x) / kUnits;
    return tile_place(C.format, group, unit, k_tiles * (C.threads / 32) + warp, static_cast<int>(blockIdx.y),
                      static_cast<int>(blockIdx.z), rows, k);
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const void* values, const void* scales, void* y, const float* global_scale,
                                       long long groups, int rows, int k) {
  common::require_legal<why_invalid(C)>();
  // A warp has 32 groups of 16; a lane a piece of one group in each of so many rounds.
  constexpr int kPieces = 16 / kLaneElements<C>, kRounds = kPieces;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float g = C.global_scale == GlobalScale::given ? *global_scale : 1.0f;

  // All loads first: a decoding between them would wait for each.
  long long elements[kRounds];
  bool is_live[kRounds];
  unsigned words[kRounds][2] = {};
  unsigned codes[kRounds] = {};
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const BlockPlace place = place_of_group<C>(i * (32 / kRounds) + lane / kPieces, groups, rows, k);
    is_live[i] = place.is_live;
    elements[i] = place.element + lane % kPieces * kLaneElements<C>;
    if (!place.is_live) continue;
    load_codes<C>(values, elements[i], words[i]);
    codes[i] = ptx::ld_global_u8(static_cast<const char*>(scales) + place.scale);
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    if (!is_live[i]) continue;
    float factor = scale_value<scale_type(C.format)>(codes[i]);
    if constexpr (C.global_scale == GlobalScale::given) factor = __fmul_rn(factor, g);
    unsigned pairs[kLaneElements<C> / 2];
    decode<C>(words[i], pairs);
    store_elements<C>(y, elements[i], pairs, factor);
  }
}

}  // namespace tessera::dequantize
