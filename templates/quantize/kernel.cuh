// The body of quantize: sixteen elements a thread, from load to store without shared memory. In and out: see
// spec/quantize.h. amax_kernel is the step before, for GlobalScale::amax.
#pragma once

#include "ptx/global.cuh"
#include "quantize/elements.cuh"
#include "quantize/round.cuh"
#include "quantize/scale.cuh"
#include "spec/block_map.h"
#include "spec/quantize.h"

namespace tessera::quantize {

// A compile error that shows the rule and both numbers: only a legal Config's specialisation is complete.
template <Rule kRule, long long kFound, long long kBound>
struct IllegalConfig;
template <>
struct IllegalConfig<Rule::ok, 0, 0> {};

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

// What is the same for all blocks of nvfp4.
struct Unit {
  float g = 1;
  float unit = 6;
  float reciprocal = 0;
  bool is_power = true;  // g is a power of two
};

// The scale's code of an nvfp4 block; x becomes what is rounded. The values are zeros where false is returned.
template <Config C>
__device__ __forceinline__ bool scale_nvfp4(float (&x)[16], float amax, Unit u, unsigned& code) {
  constexpr bool kIsOne = C.global_scale == GlobalScale::none;
  const float most = fminf(amax, largest_float());
  code = u.unit == 0 ? 0 : ue4m3_code(kIsOne ? sixth(most) : divide_by_unit(most, u.unit, u.reciprocal));
  const float d = kIsOne ? ue4m3_value(code) : __fmul_rn(ue4m3_value(code), u.g);
  divide16_checked<kIsOne>(x, d == 0 ? 1.0f : d, amax);
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

// Whether codes of e2m1 can be found in f16: see round.cuh.
template <Config C>
inline constexpr bool kRoundsPairs = C.dtype != DType::f32&& C.conversion ==
                                     Conversion::software&& value_type(C.format) == ValueType::e2m1;

// With a global scale: by quotients in f16 where they can be made right, else by division.
template <Config C>
__device__ __forceinline__ void quantize_pairs_by_unit(float (&x)[16], float amax, Unit u, unsigned& code,
                                                       unsigned (&words)[2]) {
  code = u.unit == 0 ? 0 : ue4m3_code(divide_by_unit(fminf(amax, largest_float()), u.unit, u.reciprocal));
  const float value = __fmul_rn(ue4m3_value(code), u.g), d = value == 0 ? 1.0f : value;
  if (d >= 0x1p-90f && d <= 0x1p90f) {
    const Ties ties = u.is_power ? Ties{} : ties_of<C.dtype>(d);
    const bool has_ties = (ties.ups | ties.downs) != 0, has_both = ties.ups != 0 && ties.downs != 0;
    // Exact ties of 8 significant bits are further from all other quotients than half an ulp of f16 (round.cuh).
    const bool is_short = u.is_power || (C.dtype == DType::bf16 && has_ties && ties.are_exact);
    float factor = ptx::rcp_approx(d);
    if (has_ties && !has_both && !is_short) factor = __fmul_rn(factor, ties.ups != 0 ? kMore : kLess);
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = __fmul_rn(x[i], factor);
    if (has_both && !is_short) {
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = beside_tie(x[i], ties.downs * 0x11111111u);
    }
    encode_e2m1_quotients(x, is_short, words);
  } else {
    divide16_checked<false>(x, d, amax);
    encode_e2m1_software(x, words);
  }
  if (value == 0) words[0] = words[1] = 0;
}

// A block's scale and, in `words`, its values, where kRoundsPairs.
template <Config C>
__device__ __forceinline__ void quantize_pairs(float (&x)[16], float amax, Unit u, unsigned& code,
                                               unsigned (&words)[2]) {
  const float most = fminf(amax, largest_float());
  if constexpr (C.global_scale != GlobalScale::none) {
    quantize_pairs_by_unit<C>(x, amax, u, code, words);
  } else if constexpr (C.format == BlockFormat::nvfp4) {
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
  } else {
    unsigned words[4];
    encode_fp8<value_type(C.format)>(q, words);
    ptx::st_global_v4(at, {words[0], words[1], words[2], words[3]});
  }
}

template <Config C>
__device__ __forceinline__ Unit unit_of(float* global_scale, const unsigned* workspace) {
  Unit u;
  if constexpr (C.global_scale == GlobalScale::none) return u;
  if constexpr (C.global_scale == GlobalScale::given) u.g = *global_scale;
  if constexpr (C.global_scale == GlobalScale::amax) {
    u.g = __fdiv_rn(__uint_as_float(*workspace), 6.0f * kLargestUe4m3);
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) *global_scale = u.g;
  }
  u.unit = __fmul_rn(6.0f, u.g);
  u.reciprocal = __frcp_rn(u.unit);
  u.is_power = (__float_as_uint(u.g) & 0x7fffffu) == 0;
  return u;
}

// A group that was loaded, to its scale and values. Both lanes of a block that is shared come here, or neither.
template <Config C>
__device__ __forceinline__ void quantize_group(const BlockPlace& place, const Source16<C.dtype>& source, Unit unit,
                                               void* values, void* scales) {
  float amax = amax16(source);
  float elements[16];
  to_f32(source, elements);
  if constexpr (C.format != BlockFormat::nvfp4) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  unsigned code = 0;
  bool is_zero = false;
  if constexpr (kRoundsPairs<C>) {
    unsigned words[2];
    quantize_pairs<C>(elements, amax, unit, code, words);
    if (place.has_scale) ptx::st_global_u8(static_cast<char*>(scales) + place.scale, place.is_live ? code : 0);
    if (place.is_live) ptx::st_global_v2(static_cast<char*>(values) + place.element / 2, words[0], words[1]);
    return;
  } else if constexpr (C.format == BlockFormat::nvfp4) {
    is_zero = !scale_nvfp4<C>(elements, amax, unit, code);
  } else {
    scale_mx<C>(elements, amax, code);
  }
  if (place.has_scale) ptx::st_global_u8(static_cast<char*>(scales) + place.scale, place.is_live ? code : 0);
  if (place.is_live) store_values<C>(values, place.element, elements, is_zero);
}

template <Config C>
__device__ __forceinline__ void kernel(const void* x, void* values, void* scales, float* global_scale,
                                       const unsigned* workspace, long long groups, int rows, int k) {
  constexpr Verdict<Rule> kVerdict = why_invalid(C);
  IllegalConfig<kVerdict.rule, kVerdict.found, kVerdict.bound>{};

  // All loads first: they are what takes time.
  BlockPlace places[visits(C)];
  Source16<C.dtype> sources[visits(C)] = {};
#pragma unroll
  for (int i = 0; i < visits(C); ++i) {
    places[i] = place_of_thread<C>(i, groups, rows, k);
    if (places[i].is_live) load16<C.dtype>(x, places[i].element, sources[i]);
  }
  const Unit unit = unit_of<C>(global_scale, workspace);
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
