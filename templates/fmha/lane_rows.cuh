// Which 16 bytes of shared memory a lane names to ldmatrix, for operands of mma.sync: see row_warps.cuh.
#pragma once

#include "spec/fmha_warps.h"

namespace tessera::fmha {

// Where a lane reads 16 bytes of its rows: panels [columns / span][kRows][span]. `second`: which of two
// chunks is the lane's, or of four.
template <int kSpan, int kRows>
struct LaneRows {
  static constexpr int kChunks = kSpan / 16;
  const unsigned first;

  __device__ __forceinline__ LaneRows(unsigned base, int row, int second)
      : first(swizzle_address(swizzle_of_span(kSpan), base + (kChunks < 4 ? second / kChunks * kRows * kSpan : 0) +
                                                          row * kSpan +
                                                          (kChunks < 4 ? second % kChunks : second) * 16)) {}

  // `chunk`: a multiple of as many. `row`: a multiple of 8, from the lane's.
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
