// The body of quantize: sixteen elements a thread, from load to store without shared memory. In and out: see
// spec/quantize.h. amax_kernel is the step before, for GlobalScale::amax.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/global.cuh"
#include "ptx/max.cuh"
#include "quantize/elements.cuh"
#include "quantize/quotient.cuh"
#include "quantize/round.cuh"
#include "quantize/scale.cuh"
#include "quantize/six_bits.cuh"
#include "quantize/unit.cuh"
#include "spec/block_map.h"
#include "spec/quantize.h"

namespace tessera::quantize {

template <Config C>
__device__ __forceinline__ BlockPlace place_of_thread(int visit, long long groups, int rows, int k) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (C.scale_form == ScaleForm::plain) {
    const long long first = static_cast<long long>(blockIdx.x) * (C.threads * visits(C));
    return plain_place(C.format, first + visit * C.threads + thread, groups);
  } else {
    constexpr int kWarps = C.threads / 32, kUnits = row_units(C.format);
    const int k_tile = (static_cast<int>(blockIdx.x) / kUnits * visits(C) + visit) * kWarps + thread / 32;
    return tile_place(C.format, thread % 32, static_cast<int>(blockIdx.x) % kUnits, k_tile,
                      static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z), rows, k);
  }
}

// All of a thread's places. The later ones lie at fixed distances from the first: one address takes fewer registers.
template <Config C>
__device__ __forceinline__ void places_of_thread(BlockPlace (&places)[visits(C)], long long groups, int rows, int k) {
  constexpr bool kIsPlain = C.scale_form == ScaleForm::plain;
  constexpr int kColumns = C.threads / 32 * kTileBlocks * block_elements(C.format);
  constexpr long long kElements = kIsPlain ? C.threads * kGroup : kColumns;
  constexpr long long kScales = kIsPlain ? kElements / block_elements(C.format) : C.threads / 32 * kTileBytes;
#pragma unroll
  for (int i = 0; i < visits(C); ++i) {
    places[i] = place_of_thread<C>(i, groups, rows, k);
    places[i].element = places[0].element + i * kElements;
    places[i].scale = places[0].scale + i * kScales;
  }
}

// The same; x becomes what is rounded. The values are zeros where false is returned.
template <Config C>
__device__ __forceinline__ bool scale_nvfp4(float (&x)[16], float amax, Unit u, unsigned& code) {
  const float d = divisor_nvfp4<C.global_scale == GlobalScale::none>(amax, u, code);
  divide_checked<C.global_scale == GlobalScale::none>(x, d == 0 ? 1.0f : d, amax);
  return d != 0;
}

template <Config C>
__device__ __forceinline__ void scale_mx(float (&x)[16], float amax, unsigned& code) {
  code = ue8m0_code<C.format, C.scale_rounding>(fminf(amax, largest_float()));
  const float inverse = inverse_power(code);
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = __fmul_rn(x[i], inverse);
  // The integer arithmetic for e2m1 wants magnitudes below 7; the instructions saturate by themselves.
  if constexpr (value_type(C.format) == ValueType::e2m1 && C.conversion == Conversion::software) {
    if (C.scale_rounding == ScaleRounding::floor || amax > largest_float()) {
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = fmaxf(fminf(x[i], 6.0f), -6.0f);
    }
  }
}

// A block's scale and, in `words`, its values, for a regular global scale.
template <Config C>
__device__ __forceinline__ void quantize_quotients(Source16<C.dtype>& source, Unit u, unsigned& code,
                                                   unsigned (&words)[2]) {
  float amax = amax16_nan(source);
  const bool has_nan = !(amax >= 0);
  if (has_nan) {
    amax = amax16(source);
    replace_nan(source);
  }
  code = ue4m3_code(divide_by_unit(amax, u.unit, u.reciprocal));
  const float d = __fmul_rn(ue4m3_value(code), u.g);
  encode_e2m1_quotients<C.dtype>(source.words, d, has_nan || amax > 6.5f * d, words);
  if (code == 0) words[0] = words[1] = 0;
}

// The same for the others, which are rare: one half after the other, to take no more registers.
template <Config C>
__device__ __forceinline__ void quantize_irregular(Source16<C.dtype>& source, Unit u, unsigned& code,
                                                   unsigned (&words)[2]) {
  const float amax = amax16(source), d = divisor_nvfp4<C.global_scale == GlobalScale::none>(amax, u, code);
  words[0] = words[1] = 0;
  if (d == 0) return;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    float x[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unpack_pair<C.dtype>(source.words[i], x[2 * i], x[2 * i + 1]);
      source.words[i] = source.words[i + 4];
    }
    divide_checked<false>(x, d, amax);
    words[0] = words[1];
    words[1] = encode_e2m1_word(x);
  }
}

// A block's scale and, in `words`, its values, without a global scale. amax: of the whole block.
template <Config C>
__device__ __forceinline__ void quantize_pairs(const Source16<C.dtype>& source, float amax, unsigned& code,
                                               unsigned (&words)[2]) {
  const float most = fminf(amax, largest_float());
  float x[16];
  to_f32(source, x);
  if constexpr (C.format == BlockFormat::nvfp4) {
    code = ue4m3_code(sixth(most));
    const float d = ue4m3_value(code);
    encode_e2m1_pairs(x, ptx::rcp_approx(d == 0 ? 1.0f : d), words);
    if (d == 0) words[0] = words[1] = 0;
  } else {
    code = ue8m0_code<C.format, C.scale_rounding>(most);
    encode_e2m1_pairs(x, inverse_power(code), words);
  }
}

template <Config C>
__device__ __forceinline__ void store_values(void* values, long long element, const float (&q)[16], bool is_zero) {
  char* const at = static_cast<char*>(values) + element * value_bits(C.format) / 8;
  if constexpr (value_type(C.format) == ValueType::e2m1) {
    unsigned words[2];
    if constexpr (C.conversion == Conversion::software) {
      encode_e2m1_software(q, words);
    } else {
      encode_e2m1_hardware(q, words);
    }
    ptx::st_global_v2(at, is_zero ? 0 : words[0], is_zero ? 0 : words[1]);
  } else if constexpr (value_bits(C.format) == 6) {
    unsigned words[3];
    encode_six_bits<value_type(C.format), C.conversion>(q, words);
#pragma unroll
    for (int i = 0; i < 3; ++i) ptx::st_global_u32(at + 4 * i, words[i]);
  } else {
    unsigned words[4];
    encode_fp8_words<value_type(C.format)>(q, words);
    ptx::st_global_v4(at, {words[0], words[1], words[2], words[3]});
  }
}

template <Config C>
__device__ __forceinline__ Unit unit_of(float* global_scale, const unsigned* workspace) {
  if constexpr (C.global_scale == GlobalScale::none) return {};
  if constexpr (C.global_scale == GlobalScale::given) return unit_of_scale(*global_scale);
  const float g = __fdiv_rn(__uint_as_float(*workspace), 6.0f * kLargestUe4m3);
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) *global_scale = g;
  return unit_of_scale(g);
}

template <Config C>
__device__ __forceinline__ void store_group(const BlockPlace& place, unsigned code, const unsigned (&words)[2],
                                            void* values, void* scales) {
  if (place.has_scale) ptx::st_global_u8(static_cast<char*>(scales) + place.scale, place.is_live ? code : 0);
  if (place.is_live) ptx::st_global_v2(static_cast<char*>(values) + place.element / 2, words[0], words[1]);
}

// A group that was loaded, to its scale and values. Both lanes of a block that is shared come here, or neither.
template <Config C>
__device__ __forceinline__ void quantize_group(const BlockPlace& place, Source16<C.dtype>& source, Unit unit,
                                               void* values, void* scales) {
  unsigned code = 0, words[2];
  if constexpr (rounds_pairs(C) && C.global_scale != GlobalScale::none) {
    quantize_quotients<C>(source, unit, code, words);
    store_group<C>(place, code, words, values, scales);
    return;
  }
  float amax = amax16(source);
  if constexpr (C.format != BlockFormat::nvfp4) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  if constexpr (rounds_pairs(C)) {
    quantize_pairs<C>(source, amax, code, words);
    store_group<C>(place, code, words, values, scales);
    return;
  }
  float elements[16];
  to_f32(source, elements);
  bool is_zero = false;
  if constexpr (C.format == BlockFormat::nvfp4) {
    is_zero = !scale_nvfp4<C>(elements, amax, unit, code);
  } else {
    scale_mx<C>(elements, amax, code);
  }
  if (place.has_scale) ptx::st_global_u8(static_cast<char*>(scales) + place.scale, place.is_live ? code : 0);
  if (place.is_live) store_values<C>(values, place.element, elements, is_zero);
}

// All groups of a thread for an irregular global scale, loaded again: beside the others they would take registers.
template <Config C>
__device__ __forceinline__ void quantize_irregular_groups(const void* x, void* values, void* scales, Unit unit,
                                                          long long groups, int rows, int k) {
#pragma unroll 1
  for (int i = 0; i < visits(C); ++i) {
    const BlockPlace place = place_of_thread<C>(i, groups, rows, k);
    Source16<C.dtype> source = {};
    if (place.is_live) load_source(x, place.element, source);
    unsigned code = 0, words[2];
    quantize_irregular<C>(source, unit, code, words);
    store_group<C>(place, code, words, values, scales);
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const void* x, void* values, void* scales, float* global_scale,
                                       const unsigned* workspace, long long groups, int rows, int k) {
  common::require_legal<why_invalid(C)>();

  // All loads first: they are what takes time.
  BlockPlace places[visits(C)];
  places_of_thread<C>(places, groups, rows, k);
  Source16<C.dtype> sources[visits(C)] = {};
#pragma unroll
  for (int i = 0; i < visits(C); ++i)
    if (places[i].is_live) load_source(x, places[i].element, sources[i]);
  const Unit unit = unit_of<C>(global_scale, workspace);
  if constexpr (rounds_pairs(C) && C.global_scale != GlobalScale::none) {
    if (!unit.is_regular) {
      quantize_irregular_groups<C>(x, values, scales, unit, groups, rows, k);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < visits(C); ++i) quantize_group<C>(places[i], sources[i], unit, values, scales);
}

// The largest magnitudes of a register of x: one of fp32, or those of its two halves. NaN is left out, since max
// returns its other operand.
template <DType kDType>
__device__ __forceinline__ unsigned max_magnitude(unsigned most, unsigned word) {
  if constexpr (kDType == DType::f32) {
    return __float_as_uint(fmaxf(__uint_as_float(most), fabsf(__uint_as_float(word))));
  } else {
    return ptx::max_abs_x2<kDType>(most, word);
  }
}

// 16 bytes a lane side by side, kAmaxUnits loads of them before the first is used.
template <Config C>
__device__ __forceinline__ void amax_kernel(const void* x, unsigned* workspace, long long groups) {
  constexpr int kTile = C.threads * kAmaxUnits;
  const long long units = groups * dtype_bytes(C.dtype);
  const char* const source = static_cast<const char*>(x);
  unsigned most = 0;
#pragma unroll 1
  for (long long first = static_cast<long long>(blockIdx.x) * kTile + threadIdx.x; first < units;
       first += static_cast<long long>(gridDim.x) * kTile) {
    ptx::Vector4 v[kAmaxUnits] = {};
#pragma unroll
    for (int i = 0; i < kAmaxUnits; ++i)
      if (first + i * C.threads < units) v[i] = ptx::ld_global_v4_stream(source + 16 * (first + i * C.threads));
#pragma unroll
    for (int i = 0; i < kAmaxUnits; ++i)
      most = max_magnitude<C.dtype>(
          max_magnitude<C.dtype>(max_magnitude<C.dtype>(max_magnitude<C.dtype>(most, v[i].x), v[i].y), v[i].z), v[i].w);
  }
  float amax = __uint_as_float(most);
  if constexpr (C.dtype != DType::f32) {
    float low, high;
    unpack_pair<C.dtype>(most, low, high);
    amax = fmaxf(low, high);
  }
  // Magnitudes order like their bits. One atomic for each CTA: more would queue at one address.
  extern __shared__ unsigned of_warp[];
  unsigned bits = __float_as_uint(fminf(amax, largest_float()));
  bits = __reduce_max_sync(0xffffffffu, bits);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int w = 1; w < C.threads / 32; ++w) bits = of_warp[w] > bits ? of_warp[w] : bits;
  ptx::red_global_max(workspace, bits);
}

}  // namespace tessera::quantize
