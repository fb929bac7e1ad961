// A warp's rows: what it loads of a step, and the step's sum.
#pragma once

#include "gemv/values.cuh"
#include "gemv/vector.cuh"
#include "ptx/global.cuh"
#include "spec/gemv.h"

namespace tessera::gemv {

// Where a lane reads: its share of step 0 of each row. Held for all rows: addresses that are made anew for each load
// are computed far ahead by the compiler and take more registers.
template <Config C>
struct RowPointers {
  const char* a[C.warp_rows];
  const char* scales[C.scale_form == ScaleForm::plain ? C.warp_rows : 1];
};

// One step of a lane: 16 bytes of each row, and the codes of their block or two in the low bits.
template <Config C>
struct Step {
  ptx::Vector4 a[C.warp_rows];
  unsigned scales[C.warp_rows];
};

// Lanes past k get zeros, scales' codes included: no padding is read, and 0 times anything finite adds nothing.
template <Config C>
__device__ __forceinline__ void load_step(const RowPointers<C>& rows, int step, int k, Step<C>& out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kStep = step_elements(C);
  const bool is_live = step * kStep + lane * lane_elements(C) < k;
#pragma unroll
  for (int i = 0; i < C.warp_rows; ++i) {
    out.a[i] = {0, 0, 0, 0};
    out.scales[i] = 0;
    if (is_live) out.a[i] = ptx::ld_global_v4_stream(rows.a[i] + static_cast<long long>(step) * (32 * kLaneBytes));
  }
  if constexpr (C.scale_form == ScaleForm::plain) {
#pragma unroll
    for (int i = 0; i < C.warp_rows; ++i) {
      const char* const from = rows.scales[i] + static_cast<long long>(step) * (kStep / block(C));
      if (is_live) out.scales[i] = lane_blocks(C) == 2 ? ptx::ld_global_u16(from) : ptx::ld_global_u8(from);
    }
  } else if (is_live) {
    // Four rows 32 apart: their scales of four blocks are 16 bytes, of which this lane has one block or two.
    constexpr int kTilesOfStep = kStep / block(C) / kTileBlocks;
    const ptx::Vector4 v =
        ptx::ld_global_v4(rows.scales[0] + static_cast<long long>(step) * (kTilesOfStep * kTileBytes));
    const int shift = lane * lane_elements(C) / block(C) % kTileBlocks * 8;
    out.scales[0] = v.x >> shift;
    out.scales[1] = v.y >> shift;
    out.scales[2] = v.z >> shift;
    out.scales[3] = v.w >> shift;
  }
}

// Four times the sum of a block's products, exactly. low, high: the codes of A. Integers up to 2^22 are turned into
// fp32 by writing them into the fraction of 1.5 * 2^23.
__device__ __forceinline__ float block_sum_bytes(unsigned low, unsigned high, ptx::Vector4 b) {
  const unsigned other_low = low ^ 0x88888888u, other_high = high ^ 0x88888888u;
  int plus = ptx::dp4a(positive_part(low), b.x, 0x4b400000);
  int minus = ptx::dp4a(positive_part(other_low), b.x, 0);
  plus = ptx::dp4a(positive_part(low >> 16), b.y, plus);
  minus = ptx::dp4a(positive_part(other_low >> 16), b.y, minus);
  plus = ptx::dp4a(positive_part(high), b.z, plus);
  minus = ptx::dp4a(positive_part(other_high), b.z, minus);
  plus = ptx::dp4a(positive_part(high >> 16), b.w, plus);
  minus = ptx::dp4a(positive_part(other_high >> 16), b.w, minus);
  return __int_as_float(plus - minus) - 12582912.0f;
}

// The same with f16: each half sums 8 products, at most 288, exactly.
template <Config C>
__device__ __forceinline__ float block_sum_halves(unsigned low, unsigned high, ptx::Vector4 b_low,
                                                  ptx::Vector4 b_high) {
  unsigned first[4], last[4];
  ptx::decode_e2m1x8<C.conversion>(low, first);
  ptx::decode_e2m1x8<C.conversion>(high, last);
  unsigned sum = ptx::mul_f16x2(first[0], b_low.x);
  sum = ptx::fma_f16x2(first[1], b_low.y, sum);
  sum = ptx::fma_f16x2(first[2], b_low.z, sum);
  sum = ptx::fma_f16x2(first[3], b_low.w, sum);
  sum = ptx::fma_f16x2(last[0], b_high.x, sum);
  sum = ptx::fma_f16x2(last[1], b_high.y, sum);
  sum = ptx::fma_f16x2(last[2], b_high.z, sum);
  sum = ptx::fma_f16x2(last[3], b_high.w, sum);
  return 4.0f * (ptx::f32_of_low_f16(sum) + ptx::f32_of_high_f16(sum));
}

// Sixteen elements by sixteen twice: the two sums, in quarters. b: pieces of the lane.
template <Config C>
__device__ __forceinline__ void exact_sums(ptx::Vector4 a, const ptx::Vector4* b, float& first, float& second) {
  if constexpr (products(C) == Products::bytes) {
    first = block_sum_bytes(a.x, a.y, b[0]);
    second = block_sum_bytes(a.z, a.w, b[1]);
  } else {
    first = block_sum_halves<C>(a.x, a.y, b[0], b[1]);
    second = block_sum_halves<C>(a.z, a.w, b[2], b[3]);
  }
}

// Of a lane's elements with b in fp32, of all rows; a piece of b at a time, so that few registers hold it.
template <Config C>
__device__ __forceinline__ void float_sums(const Step<C>& step, const ptx::Vector4* pieces,
                                           float (&sums)[C.warp_rows]) {
  constexpr int kPairs = 16 / value_bits(C.format);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    unsigned pairs[C.warp_rows][kPairs];
#pragma unroll
    for (int i = 0; i < C.warp_rows; ++i) {
      const ptx::Vector4 a = step.a[i];
      decode_word<C.format, C.conversion>(w == 0 ? a.x : w == 1 ? a.y : w == 2 ? a.z : a.w, pairs[i]);
    }
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      const ptx::Vector4 b = pieces[(w * kPairs + j) / 2 * 32];
#pragma unroll
      for (int i = 0; i < C.warp_rows; ++i) {
        sums[i] = __fmaf_rn(ptx::f32_of_low_f16(pairs[i][j]), __uint_as_float(b.x), sums[i]);
        sums[i] = __fmaf_rn(ptx::f32_of_high_f16(pairs[i][j]), __uint_as_float(b.y), sums[i]);
        sums[i] = __fmaf_rn(ptx::f32_of_low_f16(pairs[i][j + 1]), __uint_as_float(b.z), sums[i]);
        sums[i] = __fmaf_rn(ptx::f32_of_high_f16(pairs[i][j + 1]), __uint_as_float(b.w), sums[i]);
      }
    }
  }
}

// panel_step: the step's number within the panel of b.
template <Config C>
__device__ __forceinline__ void add_step(const Step<C>& step, int panel_step, const ptx::Vector4* b_values,
                                         const float* b_scales, float (&sums)[C.warp_rows]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int block_of_b = panel_step * (step_elements(C) / block(C)) + lane * lane_elements(C) / block(C);
  if constexpr (products(C) == Products::floats) {
    float of_step[C.warp_rows] = {};
    float_sums<C>(step, b_values + piece_index<C>(panel_step, 0, lane), of_step);
    const float sb = b_scales[block_of_b];
#pragma unroll
    for (int i = 0; i < C.warp_rows; ++i)
      sums[i] = __fmaf_rn(of_step[i], __fmul_rn(scale_number<C.format>(step.scales[i]), sb), sums[i]);
    return;
  } else {
    ptx::Vector4 b[lane_pieces(C)];
#pragma unroll
    for (int p = 0; p < lane_pieces(C); ++p) b[p] = b_values[piece_index<C>(panel_step, p, lane)];
    float first, second;
    if constexpr (lane_blocks(C) == 2) {
      const float2 sb = *reinterpret_cast<const float2*>(b_scales + block_of_b);
#pragma unroll
      for (int i = 0; i < C.warp_rows; ++i) {
        exact_sums<C>(step.a[i], b, first, second);
        const unsigned sa = ptx::cvt_f16x2_e4m3x2(step.scales[i] & 0x7f7fu);
        sums[i] = __fmaf_rn(first, __fmul_rn(ptx::f32_of_low_f16(sa), sb.x), sums[i]);
        sums[i] = __fmaf_rn(second, __fmul_rn(ptx::f32_of_high_f16(sa), sb.y), sums[i]);
      }
    } else {
      const float sb = b_scales[block_of_b];
#pragma unroll
      for (int i = 0; i < C.warp_rows; ++i) {
        exact_sums<C>(step.a[i], b, first, second);
        sums[i] = __fmaf_rn(first + second, __fmul_rn(scale_number<C.format>(step.scales[i]), sb), sums[i]);
      }
    }
  }
}

}  // namespace tessera::gemv
