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
  if constexpr (C.format == BlockFormat::nvfp4) return packed_ue4m3(code);
  return min(code, kLargestPackedUe8m0 + 1u);
}
inline constexpr unsigned kCodeOfOneUe8m0 = 127;
inline constexpr unsigned kCodeOfOneUe4m3 = 0x38;

template <Config C>
struct Source {
  static constexpr int kGroup = block_elements(C.format);

  const unsigned char* values;
  const unsigned char* scales;
  int n;
  int k;
  int batch;

  // Two codes, k even.
  __device__ __forceinline__ unsigned pair(int row, int column) const {
    if (row >= n || column >= k) return 0;
    return ptx::ld_global_u8(values + (static_cast<long long>(batch) * n + row) * (k / 2) + column / 2);
  }
  __device__ __forceinline__ unsigned scale(int row, int column) const {
    if (row >= n || column >= k) return C.format == BlockFormat::nvfp4 ? kCodeOfOneUe4m3 : kCodeOfOneUe8m0;
    return ptx::ld_global_u8(scales + scale_offset(C.scale_form, n, k / kGroup, batch, row, column / kGroup));
  }
};

// Word `index` of the codes: of a thread of the multiplying warpgroup, for 16 of k.
template <Config C>
__device__ __forceinline__ unsigned code_word(const Source<C>& source, int first_row, int first_column, int index) {
  const int step = index % 4, thread = index / 4 % 128, half = index / 512;
  const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
  const int column = first_column + half * kWeightHalf + step * 16 + thread % 4 * 2;
  unsigned word = 0;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int of_row = row + r % 2 * 8, of_column = column + r / 2 * 8;
    const unsigned codes = source.pair(of_row, of_column);
    bool is_zero = false;
    if constexpr (C.format == BlockFormat::nvfp4) is_zero = (source.scale(of_row, of_column) & 0x7f) == 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned code = codes >> (4 * i) & 15;
      word |= placed_code(is_zero ? code & 8 : code, r, i);
    }
  }
  return word;
}

template <Config C>
__device__ __forceinline__ unsigned scale_word(const Source<C>& source, int first_row, int first_column, int index) {
  constexpr PackedWeights kWeights = weights(C);
  constexpr int kOfHalf = kWeightDepth / kWeights.group / 2, kBytes = pair_bytes(kWeights);
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int byte = index * 4 + i, pair = byte / kBytes, within = byte % kBytes;
    const int row = first_row + pair / 8 * 16 + pair % 8 + within % (2 * kOfHalf) / kOfHalf * 8;
    const int scale = within / (2 * kOfHalf) * kOfHalf + within % kOfHalf;
    word |= packed_scale<C>(source.scale(row, first_column + scale * kWeights.group)) << (8 * i);
  }
  return word;
}

template <Config C>
__device__ __forceinline__ void kernel(const void* values, const void* scales, void* packed, int n, int k) {
  common::require_legal<why_invalid(C)>();
  constexpr int kBytes = weight_block_bytes(weights(C));
  const int steps = (k + kWeightDepth - 1) / kWeightDepth;
  const int block = static_cast<int>(blockIdx.x);
  const int first_row = block / steps * kWeightRows, first_column = block % steps * kWeightDepth;
  const Source<C> source{static_cast<const unsigned char*>(values), static_cast<const unsigned char*>(scales), n, k,
                         static_cast<int>(blockIdx.y)};
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
