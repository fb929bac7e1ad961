// The body of pack_weights: words of codes, then words of scales, of one block. Rows behind n and columns behind k get
// zero codes under scales that are numbers.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/global.cuh"
#include "spec/pack_weights.h"

namespace tessera::pack_weights {

// Of a scale's code, or of none.
template <Config C>
__device__ __forceinline__ unsigned packed_scale(unsigned code) {
  if constexpr (C.format == WeightFormat::nvfp4) return packed_ue4m3(code);
  return min(code, kLargestPackedUe8m0 + 1u);
}
inline constexpr unsigned kCodeOfOneUe8m0 = 127;
inline constexpr unsigned kCodeOfOneUe4m3 = 0x38;

template <Config C>
struct Source {
  static constexpr PackedWeights kWeights = weights(C);

  const void* values;
  const void* scales;
  const void* zeros;
  int n;
  int k;
  int batch;

  __device__ __forceinline__ bool is_inside(int row, int column) const { return row < n && column < k; }
  __device__ __forceinline__ long long row_of(int row) const { return static_cast<long long>(batch) * n + row; }
  __device__ __forceinline__ long long scale_of(int row, int column) const {
    return row_of(row) * (k / kWeights.group) + column / kWeights.group;
  }

  // Two codes, k even.
  __device__ __forceinline__ unsigned pair(int row, int column) const {
    if (!is_inside(row, column)) return 0;
    const unsigned codes = ptx::ld_global_u8(static_cast<const char*>(values) + row_of(row) * (k / 2) + column / 2);
    // Two's complement plus 8.
    return C.format == WeightFormat::int4 && !kWeights.has_zeros ? codes ^ 0x88 : codes;
  }
  // e2m1: the scale's code.
  __device__ __forceinline__ unsigned scale(int row, int column) const {
    if (!is_inside(row, column)) return C.format == WeightFormat::nvfp4 ? kCodeOfOneUe4m3 : kCodeOfOneUe8m0;
    return ptx::ld_global_u8(static_cast<const char*>(scales) +
                             scale_offset(C.scale_form, n, k / kWeights.group, batch, row, column / kWeights.group));
  }
  // int4: the scale's bits, and what is taken off the code with the magic number.
  __device__ __forceinline__ unsigned scale_bits(int row, int column) const {
    if (!is_inside(row, column)) return 0;
    return ptx::ld_global_u16(static_cast<const unsigned short*>(scales) + scale_of(row, column));
  }
  __device__ __forceinline__ unsigned zero_bits(int row, int column) const {
    if (!is_inside(row, column)) return int4_magic(C.dtype);
    return int4_magic(C.dtype) + (ptx::ld_global_u8(static_cast<const char*>(zeros) + scale_of(row, column)) & 15);
  }
};

// What a register of a step of 16 of k has in the word `is_second` of its pair.
template <Config C>
__device__ __forceinline__ unsigned placed_codes(const Source<C>& source, int row, int column, int step, int r,
                                                 bool is_second) {
  const int of_row = row + r % 2 * 8, of_column = column + step * 16 + r / 2 * 8;
  const unsigned codes = source.pair(of_row, of_column);
  bool is_zero = false;
  if constexpr (C.format == WeightFormat::nvfp4) is_zero = (source.scale(of_row, of_column) & 0x7f) == 0;
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned code = codes >> (4 * i) & 15;
    const PlacedCode placed = placed_code(operand_type(C.format), is_zero ? code & 8 : code, step % 2 != 0, r, i);
    word |= is_second ? placed.second : placed.first;
  }
  return word;
}

// Word `index` of the codes: of a thread of the multiplying warpgroup, for 16 of k, and a part of what its pair shares.
template <Config C>
__device__ __forceinline__ unsigned code_word(const Source<C>& source, int first_row, int first_column, int index) {
  const int step = index % 4, thread = index / 4 % 128, half = index / 512;
  const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
  const int column = first_column + half * kWeightHalf + thread % 4 * 2;
  const bool is_second = step % 2 != 0;
  unsigned word = 0;
  if constexpr (C.format != WeightFormat::int4) word = placed_codes<C>(source, row, column, step ^ 1, 3, is_second);
#pragma unroll
  for (int r = 0; r < 4; ++r) word |= placed_codes<C>(source, row, column, step, r, is_second);
  return word;
}

template <Config C>
__device__ __forceinline__ unsigned scale_word(const Source<C>& source, int first_row, int first_column, int index) {
  constexpr PackedWeights kWeights = weights(C);
  constexpr int kBytes = pair_bytes(kWeights), kOfPair = pair_scale_bytes(kWeights);
  unsigned word = 0;
  if constexpr (is_e2m1(kWeights.type)) {
    constexpr int kOfHalf = kOfPair / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int byte = index * 4 + i, pair = byte / kBytes, within = byte % kBytes;
      const int row = first_row + pair / 8 * 16 + pair % 8 + within % (2 * kOfHalf) / kOfHalf * 8;
      const int scale = within / (2 * kOfHalf) * kOfHalf + within % kOfHalf;
      word |= packed_scale<C>(source.scale(row, first_column + scale * kWeights.group)) << (8 * i);
    }
  } else {
    // Both rows of a pair.
    const int pair = index * 4 / kBytes, within = index * 4 % kBytes;
    const int row = first_row + pair / 8 * 16 + pair % 8;
    const int column = first_column + within % kOfPair / 4 * kWeights.group;
    const bool is_zero_point = within >= kOfPair;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      word |= (is_zero_point ? source.zero_bits(row + 8 * i, column) : source.scale_bits(row + 8 * i, column))
              << (16 * i);
  }
  return word;
}

template <Config C>
__device__ __forceinline__ void kernel(const void* values, const void* scales, const void* zeros, void* packed, int n,
                                       int k) {
  common::require_legal<why_invalid(C)>();
  constexpr int kBytes = weight_block_bytes(weights(C));
  const int steps = (k + kWeightDepth - 1) / kWeightDepth;
  const int block = static_cast<int>(blockIdx.x);
  const int first_row = block / steps * kWeightRows, first_column = block % steps * kWeightDepth;
  const Source<C> source{values, scales, zeros, n, k, static_cast<int>(blockIdx.y)};
  unsigned* const to = reinterpret_cast<unsigned*>(
      static_cast<char*>(packed) + (static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * kBytes);
#pragma unroll 1
  for (int word = static_cast<int>(threadIdx.x); word < kBytes / 4; word += kNumThreads) {
    const int of_scales = word - kWeightCodeBytes / 4;
    ptx::st_global_u32(to + word, of_scales < 0 ? code_word<C>(source, first_row, first_column, word)
                                                : scale_word<C>(source, first_row, first_column, of_scales));
  }
}

}  // namespace tessera::pack_weights
