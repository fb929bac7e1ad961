// Sequences of NVFP4 attention: where the rows of each lie among those of all, and its blocks of 128 in the units. One
// meaning for the kernel that quantises and for attention. Whatever the numbers in memory are, none leads outside.
//
// Dense: a sequence has seqlen places, and as many blocks as these need. Ragged: rows follow each other, sequence s
// from starts[s] on; its first block is starts[s] / 128 + s, so that no two sequences share a block and all together
// have at most ceil(rows / 128) + sequences, without a sum over the sequences before.
#pragma once

#include "ptx/global.cuh"
#include "tessera/spec/types.h"

namespace tessera::attention {

struct SequenceRows {
  int first;  // among the rows of all; dense: 0, its place is a stride
  int rows;
  int first_block;  // among the blocks of all
};

template <int kBlock>
__device__ __forceinline__ int blocks_of_rows(int rows) {
  return rows > 0 ? (rows - 1) / kBlock + 1 : 0;
}

__device__ __forceinline__ int start_of(const int* starts, int sequence, int all) {
  return min(max(static_cast<int>(ptx::ld_global_u32(starts + sequence)), 0), all);
}

// `seqlen`: places of a sequence, most of its rows; `all`: of ragged ones together; used: valid lengths, or null.
template <bool kIsRagged, int kBlock>
__device__ __forceinline__ SequenceRows rows_of(const int* starts, const int* used, int sequence, int seqlen, int all) {
  SequenceRows of{0, seqlen, 0};
  if constexpr (kIsRagged) {
    const int first = start_of(starts, sequence, all), end = start_of(starts, sequence + 1, all);
    of = {first, min(max(end - first, 0), seqlen), first / kBlock + sequence};
  } else {
    of.first_block = sequence * blocks_of_rows<kBlock>(seqlen);
  }
  if (used != nullptr) of.rows = min(max(static_cast<int>(ptx::ld_global_u32(used + sequence)), 0), of.rows);
  return of;
}

// Blocks that all sequences may have.
template <bool kIsRagged, int kBlock>
__device__ __forceinline__ int blocks_of_all(int sequences, int seqlen, int all) {
  return kIsRagged ? blocks_of_rows<kBlock>(all) + sequences : sequences * blocks_of_rows<kBlock>(seqlen);
}

// Whose a block is. Ragged: the last sequence whose first block is not behind it.
template <bool kIsRagged, int kBlock>
__device__ __forceinline__ int sequence_of(const int* starts, int block, int sequences, int seqlen, int all) {
  if constexpr (!kIsRagged) return block / blocks_of_rows<kBlock>(seqlen);
  int low = 0, high = sequences;
#pragma unroll 1
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (start_of(starts, middle, all) / kBlock + middle <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace tessera::attention
