// Which 16 bytes of shared memory a lane names to ldmatrix, for operands of mma.sync: see row_warps.cuh.
#pragma once

#include "spec/fmha_warps.h"

namespace tessera::fmha {

// Where a lane reads 16 bytes of its rows: panels [columns / span][kRows][span]. `second`: whether the second of two
// chunks is the lane's.
template <int kSpan, int kRows>
struct LaneRows {
  static constexpr int kChunks = kSpan / 16;
  const unsigned first;

  __device__ __forceinline__ LaneRows(unsigned base, int row, int second)
      : first(kChunks == 1 ? base + (second * kRows + row) * kSpan
                           : swizzle_address(swizzle_of_span(kSpan), base + row * kSpan + second * 16)) {}

  // `chunk`: even. `row`: a multiple of 8, from the lane's.
  __device__ __forceinline__ unsigned at(unsigned offset, int chunk, int row) const {
    return ((first + offset) ^ (chunk % kChunks * 16)) + (chunk / kChunks * kRows + row) * kSpan;
  }
};

// As the second operand of a product takes keys: 8 of them with both chunks, then the next 8; and as it takes values:
// 16 keys of a chunk, then of the next one. The first operand's rows lie as values do.
__device__ __forceinline__ int row_of_key(int lane) { return lane / 16 * 8 + lane % 8; }
__device__ __forceinline__ int chunk_of_key(int lane) { return lane / 8 % 2; }
__device__ __forceinline__ int row_of_value(int lane) { return lane % 16; }
__device__ __forceinline__ int chunk_of_value(int lane) { return lane / 16; }

}  // namespace tessera::fmha
