// Rows that are made of several rows of x, or of values and scales.
#pragma once

#include "dequantize/scale_value.cuh"
#include "ptx/e2m1.cuh"
#include "ptx/reciprocal.cuh"
#include "rows/row.cuh"

namespace tessera::rows {

// The sum of weight times row over the rows of x that row i names, in their order.
template <Config C>
__device__ __forceinline__ void load_combined(const Params& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  const StepParams& step = p.steps[source_step(C.chain)];
  const long long first = place.row * S.block;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = 0;
  }
  if (!place.is_live) return;
  constexpr int kTogether = S.block < 4 ? S.block : 4;
#pragma unroll
  for (int from = 0; from < S.block; from += kTogether) {
    Raw<C.dtype> raw[kTogether][vectors_of_thread(C)];
    float weights[kTogether];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (from + t >= S.block) continue;
      const int row = ptx::ld_global_s32_written(static_cast<const int*>(step.in) + first + from + t);
      const bool is_row = row >= 0 && row < p.x_rows;
      weights[t] = 1;
      if constexpr (S.has_weight)
        weights[t] = ptx::ld_global_f32_written(static_cast<const float*>(step.in2) + first + from + t);
      if (!is_row) weights[t] = 0;
#pragma unroll
      for (int j = 0; j < vectors_of_thread(C); ++j) {
        const int column = column_of<C>(place, j);
        raw[t][j] = zeros8<C.dtype>();
        if (is_row && (!has_tail(C) || column < C.columns)) raw[t][j] = load8<C.dtype>(p.x, row * p.x_stride + column);
      }
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (from + t >= S.block) continue;
#pragma unroll
      for (int j = 0; j < vectors_of_thread(C); ++j) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) x.v[j][i] = fmaf(weights[t], element<C.dtype>(raw[t][j], i), x.v[j][i]);
      }
    }
  }
}

// A token's scores and values of a vector's columns.
template <Config C>
struct TokenOfEntry {
  Raw<C.dtype> values, scores;
  Raw<DType::f32> ape;
  bool is_there;
};

template <Config C>
__device__ __forceinline__ void load_token_of_entry(const Params& p, const Place& place, int number, int column,
                                                    TokenOfEntry<C>& token) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  const StepParams& step = p.steps[source_step(C.chain)];
  token.is_there = false;
  token.values = token.scores = zeros8<C.dtype>();
  token.ape = zeros8<DType::f32>();
  if (!place.is_live || (has_tail(C) && column >= C.columns)) return;
  const int row =
      ptx::ld_global_s32_written(static_cast<const int*>(step.in3) + place.row * compressed_tokens(S) + number);
  if (row < 0 || row >= p.x_rows) return;
  // With overlap the entry's own tokens have the second halves of rows.
  const int at = column + (S.overlaps && number >= S.block ? C.columns : 0);
  token.is_there = true;
  token.values = load8<C.dtype>(p.x, row * p.x_stride + at);
  token.scores = load8<C.dtype>(step.in, row * step.in_stride + at);
  token.ape =
      load8<DType::f32>(step.in2, static_cast<long long>(number % S.block) * source_columns(C.chain, C.columns) + at);
}

// An entry of compressed tokens: of each column the softmax of score + ape over the tokens, times their values. In one
// pass: sums are scaled down when a larger score comes.
template <Config C>
__device__ __forceinline__ void load_compressed(const Params& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  constexpr int kTokens = compressed_tokens(S), kTogether = kTokens < 4 ? kTokens : 4;
  constexpr float kLog2e = 1.4426950408889634f;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int column = column_of<C>(place, j);
    float most[kVector], sum[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      most[i] = ptx::minus_infinity();
      sum[i] = x.v[j][i] = 0;
    }
#pragma unroll 1
    for (int from = 0; from < kTokens; from += kTogether) {
      TokenOfEntry<C> tokens[kTogether];
#pragma unroll
      for (int t = 0; t < kTogether; ++t) load_token_of_entry<C>(p, place, from + t, column, tokens[t]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        float scores[kTogether], largest = most[i];
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          scores[t] = tokens[t].is_there ? element<C.dtype>(tokens[t].scores, i) + element<DType::f32>(tokens[t].ape, i)
                                         : ptx::minus_infinity();
          largest = fmaxf(largest, scores[t]);
        }
        // Nothing but -inf so far: a difference would be no number.
        const float base = largest == ptx::minus_infinity() ? 0.0f : largest;
        const float factor = ptx::ex2((most[i] - base) * kLog2e);
        sum[i] *= factor;
        x.v[j][i] *= factor;
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          const float share = ptx::ex2((scores[t] - base) * kLog2e);
          sum[i] += share;
          x.v[j][i] = fmaf(share, element<C.dtype>(tokens[t].values, i), x.v[j][i]);
        }
        most[i] = largest;
      }
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = sum[i] == 0 ? 0.0f : x.v[j][i] * ptx::rcp(sum[i]);
  }
}

// Eight values of a format, as pairs of f16, which have them exactly.
template <Config C, RowStep S>
__device__ __forceinline__ void load_codes(const void* values, long long byte, unsigned (&pairs)[kVector / 2]) {
  const char* const at = static_cast<const char*>(values) + byte;
  constexpr ValueType kType = S.is_e4m3 ? ValueType::e4m3 : value_type(S.format);
  if constexpr (kType == ValueType::e2m1) {
    ptx::decode_e2m1x8<C.conversion>(static_cast<unsigned>(ptx::ld_global_s32_written(at)), pairs);
  } else {
    unsigned words[2];
    ptx::ld_global_v2_written(at, words[0], words[1]);
#pragma unroll
    for (int i = 0; i < kVector / 2; ++i) {
      const unsigned two = words[i / 2] >> (i % 2 * 16);
      pairs[i] = kType == ValueType::e4m3 ? ptx::cvt_f16x2_e4m3x2(two) : ptx::cvt_f16x2_e5m2x2(two);
    }
  }
}

// The scale of the block that a column is in, of row `row` of x.
template <Config C, RowStep S>
__device__ __forceinline__ float load_scale(const Params& p, const StepParams& step, long long row, int column) {
  if constexpr (S.is_e4m3 && S.block <= 0) {
    return ptx::ld_global_f32_written(static_cast<const float*>(step.in) + (S.block < 0 ? 0 : row));
  } else if constexpr (S.is_e4m3) {
    const int block = column / S.block;
    const long long at = S.is_column_major ? block * step.in_stride + row : row * (C.columns / S.block) + block;
    return ptx::ld_global_f32_written(static_cast<const float*>(step.in) + at);
  } else {
    constexpr int kBlock = block_elements(S.format);
    const long long at = scale_offset(S.form, 0, C.columns / kBlock, 0, row, column / kBlock);
    const float scale = dequantize::scale_value<scale_type(S.format)>(
        ptx::ld_global_u8_written(static_cast<const unsigned char*>(step.in) + at));
    if constexpr (S.has_global) return scale * ptx::ld_global_f32_written(step.in2);
    return scale;
  }
}

template <Config C>
__device__ __forceinline__ void load_dequantized(const Params& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  const StepParams& step = p.steps[source_step(C.chain)];
  constexpr int kBits = S.is_e4m3 ? 8 : value_bits(S.format);
  unsigned pairs[vectors_of_thread(C)][kVector / 2] = {};
  float scales[vectors_of_thread(C)];
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int column = column_of<C>(place, j);
    scales[j] = 0;
    if (place.source < 0 || (has_tail(C) && column >= C.columns)) continue;
    load_codes<C, S>(p.x, place.source * p.x_stride + column * kBits / 8, pairs[j]);
    scales[j] = load_scale<C, S>(p, step, place.source, column);
  }
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
#pragma unroll
    for (int i = 0; i < kVector / 2; ++i) {
      x.v[j][2 * i] = ptx::f32_of_low_f16(pairs[j][i]) * scales[j];
      x.v[j][2 * i + 1] = ptx::f32_of_high_f16(pairs[j][i]) * scales[j];
    }
  }
}

}  // namespace tessera::rows
