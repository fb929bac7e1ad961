// The body of pack_weights: the codes of one block, 16 bytes a thread, then words of scales. Rows behind n and columns
// behind k get zero codes under scales that are numbers.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/global.cuh"
#include "spec/pack_weights.h"

namespace tessera::pack_weights {

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

  // Sixteen codes, k a multiple of as many.
  __device__ __forceinline__ void codes(int row, int column, unsigned& low, unsigned& high) const {
    low = high = 0;
    if (!is_inside(row, column)) return;
    ptx::ld_global_v2(static_cast<const char*>(values) + row_of(row) * (k / 2) + column / 2, low, high);
    // Two's complement plus 8.
    constexpr unsigned kMiddle = C.format == WeightFormat::int4 && !kWeights.has_zeros ? 0x88888888 : 0;
    low ^= kMiddle;
    high ^= kMiddle;
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

// Two codes of e2m1 in the halves of a register in bf16: sign in bit 15, exponent and mantissa in bits 8..6.
__device__ __forceinline__ unsigned in_halves(unsigned codes) {
  return (codes & 0x07) << 6 | (codes & 0x08) << 12 | (codes & 0x70) << 18 | (codes & 0x80) << 24;
}
__device__ __forceinline__ unsigned rotated_right(unsigned word, int bits) {
  return bits == 0 ? word : word >> bits | word << (32 - bits);
}
// Register r of a step of 16 of k, into the word of the step and that of the other step of its pair (placed_code()).
// Words of e2m1 are then made such that their sum has register 3.
template <Config C>
__device__ __forceinline__ void place(unsigned codes, bool is_second, int r, unsigned& own, unsigned& other) {
  if constexpr (C.format == WeightFormat::int4) {
    own |= (codes & 15) << 4 * r | codes >> 4 << (16 + 4 * r);
  } else {
    const unsigned placed = rotated_right(in_halves(codes), code_rotation(is_second, r));
    if (r < 3) {
      own |= placed;
    } else {
      (is_second ? other : own) |= placed & kLeftOfFirst;
      (is_second ? own : other) |= (placed & ~kLeftOfFirst) >> kShiftOfSecond;
    }
  }
}

// The codes of a thread of the multiplying warpgroup, for 64 of k: four lanes have the same two rows, each 16 of k of
// them, and hand each other a byte of each eight. All lanes.
template <Config C>
__device__ __forceinline__ void code_words(const Source<C>& source, int first_row, int first_column, int thread,
                                           unsigned (&words)[4]) {
  const int lane = thread % 32, quad = lane / 4 * 4;
  const int row = first_row + thread / 32 % 4 * 16 + lane / 4, column = first_column + thread / 128 * kWeightHalf;
  const int own_column = column + lane % 4 * 16;
  unsigned codes[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) source.codes(row + 8 * i, own_column, codes[i][0], codes[i][1]);
  unsigned zeros[2] = {};  // of a scale of zero only the signs are left
  if constexpr (C.format == WeightFormat::nvfp4) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      zeros[i] = __ballot_sync(0xffffffff, (source.scale(row + 8 * i, own_column) & 0x7f) == 0) >> quad;
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const unsigned eight = __shfl_sync(0xffffffff, codes[r % 2][r / 2], quad + step);
      unsigned pair = eight >> (lane % 4 * 8) & 0xff;
      if (C.format == WeightFormat::nvfp4 && (zeros[r % 2] >> step & 1) != 0) pair &= 0x88;
      place<C>(pair, step % 2 != 0, r, words[step], words[step ^ 1]);
    }
  }
  if constexpr (C.format != WeightFormat::int4) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const WordPair pair = pair_with_sum(words[i], words[i + 1]);
      words[i] = pair.first;
      words[i + 1] = pair.second;
    }
  }
}

template <Config C>
__device__ __forceinline__ unsigned scale_word(const Source<C>& source, int first_row, int first_column, int index) {
  constexpr PackedWeights kWeights = weights(C);
  constexpr int kBytes = pair_bytes(kWeights), kOfPair = pair_scale_bytes(kWeights);
  unsigned word = 0;
  if constexpr (kWeights.type == OperandType::mxfp4) {
    // Both rows of a pair, for 64 of k.
    const int pair = index * 4 / kBytes, half = index * 4 % kBytes / 4;
    const int row = first_row + pair / 8 * 16 + pair % 8, column = first_column + half * kWeightHalf;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word |=
          placed_exponent(packed_ue8m0(source.scale(row + i / 2 * 8, column + i % 2 * kWeights.group)), i / 2, i % 2);
  } else if constexpr (kWeights.type == OperandType::nvfp4) {
    constexpr int kOfHalf = kOfPair / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int byte = index * 4 + i, pair = byte / kBytes, within = byte % kBytes;
      const int row = first_row + pair / 8 * 16 + pair % 8 + within % (2 * kOfHalf) / kOfHalf * 8;
      const int scale = within / (2 * kOfHalf) * kOfHalf + within % kOfHalf;
      word |= packed_ue4m3(source.scale(row, first_column + scale * kWeights.group)) << (8 * i);
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
  static_assert(kNumThreads * 16 == kWeightCodeBytes);
  const int thread = static_cast<int>(threadIdx.x);
  unsigned words[4] = {};
  code_words<C>(source, first_row, first_column, thread, words);
  ptx::st_global_v4(to + thread * 4, {words[0], words[1], words[2], words[3]});
#pragma unroll 1
  for (int word = thread; word < (kBytes - kWeightCodeBytes) / 4; word += kNumThreads)
    ptx::st_global_u32(to + kWeightCodeBytes / 4 + word, scale_word<C>(source, first_row, first_column, word));
}

}  // namespace tessera::pack_weights
