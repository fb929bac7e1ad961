// Where rows go: elements as they are, block-scaled formats, e4m3 under fp32 scales. What is rounded how:
// reference/rows.h and, of block-scaled formats, reference/quantize.h, whose bytes these are.
#pragma once

#include "ptx/reciprocal.cuh"
#include "ptx/red.cuh"
#include "quantize/quotient.cuh"
#include "quantize/round.cuh"
#include "quantize/scale.cuh"
#include "quantize/unit.cuh"
#include "rows/row.cuh"

namespace tessera::rows {

// A token's place in pages, of a slot that is one.
struct PagedPlace {
  long long page;
  unsigned token;
};
__device__ __forceinline__ bool has_page(const Params& p, const Place& place) {
  return place.is_live && place.slot >= 0 && place.slot < p.cache_slots;
}
__device__ __forceinline__ PagedPlace page_of(const Params& p, const Place& place) {
  const unsigned page = static_cast<unsigned>(place.slot) / static_cast<unsigned>(p.page_size);
  return {page, static_cast<unsigned>(place.slot) - page * static_cast<unsigned>(p.page_size)};
}

// The row that a sink writes; negative: none.
template <RowStep S>
__device__ __forceinline__ long long row_of_sink(const Params& p, const Place& place) {
  if constexpr (S.is_placed) return place.slot < p.placed_rows ? place.slot : -1;
  return place.is_live ? place.row : -1;
}

// Where a sink's row begins, in elements, of rows that are `stride` apart; negative: nowhere.
template <Config C, RowStep S>
__device__ __forceinline__ long long start_of_sink(const Params& p, const StepParams& step, const Place& place,
                                                   long long stride) {
  if constexpr (S.is_paged) {
    if (!has_page(p, place)) return -1;
    const PagedPlace at = page_of(p, place);
    return at.page * step.out_stride_page + at.token * step.out_stride_token + place.head * step.out_stride;
  }
  if constexpr (has_heads(C.chain, S))
    return place.is_live ? start_in_step<C, S>(place, stride, step.out_stride_token) : -1;
  const long long row = row_of_sink<S>(p, place);
  return row < 0 ? -1 : row * stride;
}

// Adds eight elements to those in memory, each rounded to their type before it is added and after. In no order.
template <DType kDType>
__device__ __forceinline__ void add8(void* to, long long at, const float (&v)[kVector]) {
  char* const address = static_cast<char*>(to) + at * dtype_bytes(kDType);
  if constexpr (kDType == DType::f32) {
    ptx::red_add_v4_f32(address, v[0], v[1], v[2], v[3]);
    ptx::red_add_v4_f32(address + 16, v[4], v[5], v[6], v[7]);
  } else {
    ptx::red_add_v4<kDType>(address, {ptx::cvt_pack<kDType>(v[0], v[1]), ptx::cvt_pack<kDType>(v[2], v[3]),
                                      ptx::cvt_pack<kDType>(v[4], v[5]), ptx::cvt_pack<kDType>(v[6], v[7])});
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void store(const Params& p, const Place& place, const Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  const StepParams& step = p.steps[kNumber];
  const long long start = start_of_sink<C, S>(p, step, place, step.out_stride);
  if (start < 0) return;
  const long long first = start + column_of<C>(place, 0) - S.first;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    if (!is_in<C, S>(place, j)) continue;
    if constexpr (S.is_added) {
      add8<stored_type(S, C.dtype)>(step.out, first + columns_to<C>(j), x.v[j]);
    } else {
      store8<stored_type(S, C.dtype)>(step.out, first + columns_to<C>(j), x.v[j]);
    }
  }
}

__device__ __forceinline__ float largest_of(const float (&v)[kVector]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) most = fmaxf(most, fabsf(v[i]));
  return most;
}

__device__ __forceinline__ unsigned encode_e2m1_hardware(const float (&q)[kVector]) {
  return ptx::cvt_e2m1x2(q[0], q[1]) | ptx::cvt_e2m1x2(q[2], q[3]) << 8 | ptx::cvt_e2m1x2(q[4], q[5]) << 16 |
         ptx::cvt_e2m1x2(q[6], q[7]) << 24;
}

// Eight values of e2m1 without its conversion instruction: v / d, or v d for a power of two. The sign is that of v, NaN
// is +6.
template <bool kIsPower>
__device__ __forceinline__ unsigned encode_e2m1_eight(const float (&v)[kVector], float d) {
  const float scaled = __fmul_rn(d, kIsPower ? 0x1p-14f : 0x1p14f);
  const float r = kIsPower ? 0.0f : quantize::reciprocal_up(scaled);
  unsigned q[kVector / 2], signs[kVector / 2];
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    float of_pair[2], near[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if constexpr (kIsPower) {
        near[k] = __fmul_rn(v[2 * i + k], scaled);
        of_pair[k] = quantize::below_boundary(near[k]);
      } else {
        of_pair[k] = quantize::quotient(v[2 * i + k], scaled, r, near[k]);
      }
    }
    q[i] = ptx::min_abs_f16x2(quantize::kSixes, ptx::cvt_rz_f16x2(of_pair[0], of_pair[1]));
    signs[i] = ptx::prmt(__float_as_uint(near[0]), __float_as_uint(near[1]), 0x7632u);
  }
  return quantize::code_word(q, signs);
}

// Eight of bf16, as they were read, and the approximate inverse of a scale of four significant bits, or the power of
// two itself. As in quantize/round.cuh a quotient is a boundary or more than half of 2^-10 away from it; times 2^-14
// that is more than half a last place of f16's subnormals too, where e2m1's codes are bits 9 to 11. From there on they
// are rounded as integers, to nearest even. The quotient has the sign; NaN, which has none here, is +6.
__device__ __forceinline__ unsigned encode_e2m1_of_bf16(const float (&v)[kVector], float inverse) {
  constexpr unsigned kOne = 0x00010001u;
  const float scaled = __fmul_rn(inverse, 0x1p-14f);
  unsigned q[kVector / 2], rounded[kVector / 2];
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    q[i] = ptx::cvt_pack<DType::f16>(__fmul_rn(v[2 * i], scaled), __fmul_rn(v[2 * i + 1], scaled));
    const unsigned magnitude = ptx::min_abs_f16x2(quantize::kSixes, q[i]);
    // Half a step is added later: with this a tie goes up from odd codes alone.
    rounded[i] = magnitude + ((magnitude >> 9) & kOne) - kOne;
  }
  return quantize::code_word(rounded, q);
}

// Eight values of a block-scaled format, of a block whose largest magnitude is amax, and the scale's code.
template <Config C, RowStep S, bool kIsAsRead = false>
__device__ __forceinline__ void encode(const float (&v)[kVector], float amax, quantize::Unit unit, unsigned& code,
                                       unsigned (&words)[2]) {
  constexpr bool kIsSoftware = value_type(S.format) == ValueType::e2m1 && C.conversion == Conversion::software;
  const float most = fminf(amax, quantize::largest_float());
  if constexpr (S.format == BlockFormat::nvfp4) {
    const float d = quantize::divisor_nvfp4<!S.has_global>(most, unit, code);
    if constexpr (kIsSoftware && !S.has_global && kIsAsRead) {
      words[0] = encode_e2m1_of_bf16(v, ptx::rcp_approx(d == 0 ? 1.0f : d));
    } else if constexpr (kIsSoftware && !S.has_global) {
      words[0] = encode_e2m1_eight<false>(v, d == 0 ? 1.0f : d);
    } else {
      float q[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) q[i] = v[i];
      quantize::divide_checked<!S.has_global>(q, d == 0 ? 1.0f : d, amax);
      if constexpr (kIsSoftware) {
        words[0] = quantize::encode_e2m1_word(q);
      } else {
        words[0] = encode_e2m1_hardware(q);
      }
    }
    if (d == 0) words[0] = 0;
  } else {
    code = quantize::ue8m0_code<S.format, ScaleRounding::up>(most);
    const float inverse = quantize::inverse_power(code);
    if constexpr (kIsSoftware && kIsAsRead) {
      words[0] = encode_e2m1_of_bf16(v, inverse);
    } else if constexpr (kIsSoftware) {
      words[0] = encode_e2m1_eight<true>(v, inverse);
    } else {
      float q[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) q[i] = __fmul_rn(v[i], inverse);
      if constexpr (value_type(S.format) == ValueType::e2m1) {
        words[0] = encode_e2m1_hardware(q);
      } else {
        quantize::encode_fp8_words<value_type(S.format)>(q, words);
      }
    }
  }
}

// Values of a row are dense; a scale is written by the first of its block's lanes. In tiles the bytes behind the last
// row and block are written as 0: by the threads of those rows, and of the row's last block.
template <Config C, int kNumber>
__device__ __forceinline__ void quantize_blocks(const Params& p, const Place& place, const Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kBlock = block_elements(S.format), kLanes = kBlock / kVector, kWidth = width(S, C.columns);
  constexpr int kBlocks = kWidth / kBlock;
  const StepParams& step = p.steps[kNumber];
  const long long row = row_of_sink<S>(p, place);
  // Of the thread's first vector, whether it is in or not.
  const int vector = place.thread - S.first / kVector;
  char* const first_values =
      static_cast<char*>(step.out) + row * (kWidth * value_bits(S.format) / 8) + vector * value_bits(S.format);
  char* const first_scale = static_cast<char*>(step.out2) + row * kBlocks + vector / kLanes;
  quantize::Unit unit = {};
  if constexpr (S.has_global) unit = quantize::unit_of_scale(*static_cast<const float*>(step.in));
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int at = column_of<C>(place, j) - S.first;
    const float amax = over_lanes<kLanes>(largest_of(x.v[j]));
    if (!is_in<C, S>(place, j) || row < 0) continue;
    unsigned code = 0, words[2];
    encode<C, S, is_as_read(C, kNumber)>(x.v[j], amax, unit, code, words);
    char* const values = first_values + columns_to<C>(j) * value_bits(S.format) / 8;
    if constexpr (value_type(S.format) == ValueType::e2m1) {
      ptx::st_global_u32(values, words[0]);
    } else {
      ptx::st_global_v2(values, words[0], words[1]);
    }
    if (place.thread % kLanes != 0) continue;
    if constexpr (S.form == ScaleForm::plain) {
      ptx::st_global_u8(first_scale + columns_to<C>(j) / kBlock, code);
    } else {
      ptx::st_global_u8(static_cast<char*>(step.out2) +
                            scale_offset(S.form, p.rows, kBlocks, 0, row, static_cast<unsigned>(at) / kBlock),
                        code);
    }
  }
}

// Padding of scales in tiles: rows from the last one to the end of its tile by the last CTA, blocks from a row's last
// to the end of its tile by the row's first thread.
template <Config C, int kNumber>
__device__ __forceinline__ void pad_scales(const Params& p, const Place& place) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kBlocks = width(S, C.columns) / block_elements(S.format);
  constexpr int kPadded = static_cast<int>(round_up(kBlocks, kTileBlocks));
  char* const scales = static_cast<char*>(p.steps[kNumber].out2);
  if (place.is_live && place.thread == 0) {
#pragma unroll
    for (int block = kBlocks; block < kPadded; ++block)
      ptx::st_global_u8(scales + scale_offset(ScaleForm::tile, p.rows, kBlocks, 0, place.row, block), 0);
  }
  if (blockIdx.x + 1 != gridDim.x || (C.turns_of_row > 1 && place.turn > 0)) return;
  const int end = static_cast<int>(round_up(p.rows, kTileRows)), padding = (end - p.rows) * kPadded;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < padding; i += threads_of_cta(C))
    ptx::st_global_u8(scales + scale_offset(ScaleForm::tile, p.rows, kBlocks, 0, p.rows + i / kPadded, i % kPadded), 0);
}

// The scale of a block whose largest magnitude is amax, and what values are multiplied by.
template <RowStep S>
__device__ __forceinline__ float scale_of(float amax, float& inverse) {
  const float most = fminf(fmaxf(amax, 1e-4f), quantize::largest_float());
  if constexpr (S.is_power) {
    // The least power of two that is not below most / 448, and 448 = 1.75 * 2^8.
    const unsigned exponent = ((__float_as_uint(most) + (0x7fffffu - 0x600000u)) >> 23) - 8;
    inverse = __uint_as_float((254u - exponent) << 23);
    return __uint_as_float(exponent << 23);
  } else {
    inverse = ptx::rcp(most * 0x1p-16f) * (448 * 0x1p-16f);  // the reciprocal of the largest number would flush
    return most * (1.0f / 448.0f);
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void quantize_e4m3(const Params& p, const Place& place, const Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kWidth = width(S, C.columns);
  const StepParams& step = p.steps[kNumber];
  const bool is_stored = makes_values<C>(place);
  const long long row = S.is_paged ? 0 : is_stored ? row_of_sink<S>(p, place) : -1;
  const long long start = is_stored ? start_of_sink<C, S>(p, step, place, kWidth) : -1;
  float* const scales = static_cast<float*>(step.out2);
  float inverse = 1, of_row = 0;
  if constexpr (S.block < 0) inverse = ptx::rcp(x.given[kNumber]);
  if constexpr (S.block == 0) {
#pragma unroll
    for (int j = 0; j < vectors_of_thread(C); ++j)
      if (is_in<C, S>(place, j)) of_row = fmaxf(of_row, largest_of(x.v[j]));
    of_row = over_row<C, sums_before(C.chain, kNumber), true>(place, of_row);
    const float scale = scale_of<S>(of_row, inverse);
    if (place.thread == 0 && row >= 0) scales[row] = scale;
  }
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int at = column_of<C>(place, j) - S.first;
    float scale = 0;
    if constexpr (S.block > 0) scale = scale_of<S>(over_lanes<S.block / kVector>(largest_of(x.v[j])), inverse);
    if (!is_in<C, S>(place, j) || start < 0) continue;
    float q[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) q[i] = x.v[j][i] * inverse;
    unsigned words[2];
    quantize::encode_fp8_words<ValueType::e4m3>(q, words);
    ptx::st_global_v2(static_cast<char*>(step.out) + start + at, words[0], words[1]);
    if constexpr (S.block > 0) {
      if (place.thread % (S.block / kVector) != 0) continue;
      const int block = at / S.block;
      if constexpr (S.is_packed) {
        constexpr int kBlocks = kWidth / S.block, kPadded = static_cast<int>(round_up(kBlocks, 4));
        char* const bytes = static_cast<char*>(step.out2);
        ptx::st_global_u8(bytes + packed_scale_at(step.out_stride, row, block), __float_as_uint(scale) >> 23);
        // The bytes of blocks that are not there, in the last word.
        if (kPadded > kBlocks && block == kBlocks - 1) {
#pragma unroll
          for (int i = kBlocks; i < kPadded; ++i)
            ptx::st_global_u8(bytes + packed_scale_at(step.out_stride, row, i), 0);
        }
      } else if constexpr (S.is_column_major) {
        scales[block * step.out_stride + row] = scale;
      } else {
        scales[row * (kWidth / S.block) + block] = scale;
      }
    }
  }
}

// FlashMLA's scale of a block: the least power of two that is not below amax / 448, nor below 1e-4.
__device__ __forceinline__ float scale_of_cache(float amax, float& inverse) {
  const float most = fminf(fmaxf(amax, 448 * 1e-4f), quantize::largest_float());
  const unsigned exponent = ((__float_as_uint(most) + (0x7fffffu - 0x600000u)) >> 23) - 8;
  inverse = __uint_as_float((254u - exponent) << 23);
  return __uint_as_float(exponent << 23);
}

// Eight e4m3 of a block whose largest magnitude is amax, and the scale's bits: of an fp32 number, or its ue8m0.
template <RowCache kCache>
__device__ __forceinline__ unsigned encode_e4m3_of_cache(const float (&v)[kVector], float amax, unsigned (&words)[2]) {
  constexpr CacheLayout L = cache_layout(kCache);
  float inverse;
  const float scale = L.scale == CacheScale::power ? scale_of_cache(amax, inverse) : scale_of<RowStep{}>(amax, inverse);
  float q[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) q[i] = v[i] * inverse;
  quantize::encode_fp8_words<ValueType::e4m3>(q, words);
  return L.scale_bytes == 1 ? __float_as_uint(scale) >> 23 : __float_as_uint(scale);
}

// Eight e2m1 likewise. Where a scale of 0 is not wanted a block gets the least one that is more.
template <Config C, RowCache kCache>
__device__ __forceinline__ unsigned encode_e2m1_of_cache(const float (&v)[kVector], float amax, unsigned (&words)[2]) {
  constexpr CacheLayout L = cache_layout(kCache);
  unsigned code = 0;
  encode<C, RowStep{.kind = RowPart::quantize, .format = L.format}>(v, amax, {}, code, words);
  if constexpr (L.least_code > 0) {
    if (code == 0) {
      constexpr float kInverse = L.format == BlockFormat::nvfp4 ? 0x1p9f : 0x1p126f;
      code = 1;
      if constexpr (C.conversion == Conversion::software) {
        words[0] = encode_e2m1_eight<true>(v, kInverse);
      } else {
        float q[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i) q[i] = __fmul_rn(v[i], kInverse);
        words[0] = encode_e2m1_hardware(q);
      }
    }
  }
  return code;
}

// A token of a cache: values by all lanes, a scale by the first of its block's.
template <Config C, int kNumber>
__device__ __forceinline__ void store_token(const Params& p, const Place& place, const Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr CacheLayout L = cache_layout(S.cache);
  constexpr int kLanes = L.block / kVector, kPadding = cache_padding(S.cache);
  const StepParams& step = p.steps[kNumber];
  const bool is_stored = has_page(p, place);
  const PagedPlace paged = page_of(p, place);
  char* const start = static_cast<char*>(step.out) + paged.page * step.out_stride;
  char* const values = start + static_cast<long long>(paged.token) * L.token_bytes;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int at = column_of<C>(place, j) - S.first;
    const float amax = over_lanes<kLanes>(largest_of(x.v[j]));
    if (!is_stored || !is_in<C, S>(place, j)) continue;
    if (L.bf16 > 0 && at >= L.values) {
      store8<DType::bf16>(values + L.bf16_at, at - L.values, x.v[j]);
      continue;
    }
    unsigned words[2], scale;
    if constexpr (L.value == ValueType::e2m1) {
      scale = encode_e2m1_of_cache<C, S.cache>(x.v[j], amax, words);
      ptx::st_global_u32(values + at / 2, words[0]);
    } else {
      scale = encode_e4m3_of_cache<S.cache>(x.v[j], amax, words);
      ptx::st_global_v2(values + at, words[0], words[1]);
    }
    if (place.thread % kLanes != 0) continue;
    char* const scale_at = start + cache_scale_at(S.cache, p.page_size, paged.token, at / L.block);
    if constexpr (L.scale_bytes == 1) {
      ptx::st_global_u8(scale_at, scale);
    } else {
      ptx::st_global_u32(scale_at, scale);
    }
    if (kPadding > 0 && at == 0) {
#pragma unroll
      for (int i = 0; i < kPadding; ++i) ptx::st_global_u8(scale_at + cache_blocks(S.cache) + i, 0);
    }
  }
}

}  // namespace tessera::rows
