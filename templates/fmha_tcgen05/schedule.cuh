// Which tiles a CTA (or a pair) takes.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives CTA c item r * grid + c. Items of one head follow each other, so that CTAs that run at the same time share K
// and V in the L2. With the causal mask a tile's work grows with its place in the sequence: the longest tiles of all
// heads come first, and every second round goes backwards, so that long and short add up.
#pragma once

#include "fmha_tcgen05/params.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

struct TileIndex {
  int m;     // tile along the queries
  int head;  // of Q; packed: of K
  int batch;
  int split;  // which part of its keys
};

// Of numbers that are not negative. Unsigned: a division is a routine of the assembler's, and a signed one is half as
// long again.
__device__ __forceinline__ int quotient(int x, int y) {
  return static_cast<int>(static_cast<unsigned>(x) / static_cast<unsigned>(y));
}

// Which of the tile's CTAs this one is.
template <Config C>
__device__ __forceinline__ int cta_of_tile() {
  return C.cta_pair ? static_cast<int>(blockIdx.x) % 2 : 0;
}

template <Config C>
struct Schedule {
  const Params& p;
  const int m_tiles;
  const int heads;  // times batch
  const int items;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        m_tiles((params.seqlen_q * padded_heads(C) + used_rows_of_tile(C) - 1) / used_rows_of_tile(C)),
        heads(params.heads_q / C.pack_gqa * params.batch),
        items(m_tiles * heads * (is_split(C) ? params.num_splits : 1)) {}

  __device__ __forceinline__ int item(int round) const {
    const int grid = static_cast<int>(gridDim.x) / ctas_per_tile(C);
    const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C);
    const bool is_backwards = is_uneven(C.facts) && round % 2 == 1;
    return round * grid + (is_backwards ? grid - 1 - cta : cta);
  }
  // Whether this CTA has a tile in `round`; if not, it has none later.
  __device__ __forceinline__ bool has(int round) const { return item(round) < items; }

  // The parts of a tile's keys follow each other.
  __device__ __forceinline__ TileIndex at(int round) const {
    const int part = item(round);
    const int i = is_split(C) ? quotient(part, p.num_splits) : part;
    const int split = is_split(C) ? part - i * p.num_splits : 0;
    int m, head;
    if constexpr (is_uneven(C.facts)) {
      const int from_end = quotient(i, heads);
      m = m_tiles - 1 - from_end;
      head = i - from_end * heads;
    } else {
      head = quotient(i, m_tiles);
      m = i - head * m_tiles;
    }
    const int heads_of_batch = p.heads_q / C.pack_gqa;
    const int batch = quotient(head, heads_of_batch);
    return {m, head - batch * heads_of_batch, batch, split};
  }
};

// Packed row of the sequence where this CTA's rows of a Q tile begin.
template <Config C>
__device__ __forceinline__ int first_row(const TileIndex& tile, int q_tile) {
  return tile.m * used_rows_of_tile(C) + q_tile * used_rows_of_product(C) + cta_of_tile<C>() * used_rows(C);
}

// Its head among those that share a key head: rows that are none count as the last one's.
template <Config C>
__device__ __forceinline__ int head_of_row(int row) {
  const int head = row % padded_heads(C);
  return padded_heads(C) == C.pack_gqa ? head : min(head, C.pack_gqa - 1);
}
// Whether it is a row of the output. `place`: among the CTA's.
template <Config C>
__device__ __forceinline__ bool is_used_row(const Params& p, int row, int place) {
  const bool is_head = padded_heads(C) == C.pack_gqa || row % padded_heads(C) < C.pack_gqa;
  return row / padded_heads(C) < p.seqlen_q && place < used_rows(C) && is_head;
}

// Which buffer of S a step of a Q tile has, and its barriers' parity. Two Q tiles have one buffer each, one Q tile
// takes turns. Every role that follows a Q tile's steps counts for itself.
template <Config C>
struct BufferPosition {
  unsigned parities = 0;  // bit b: of the phase that comes next on buffer b
  int turn = 0;

  __device__ __forceinline__ int buffer(int q_tile) const { return q_tiles(C) == 2 ? q_tile : turn; }
  __device__ __forceinline__ unsigned parity(int buffer) const { return parities >> buffer & 1; }
  __device__ __forceinline__ void advance(int buffer) {
    parities ^= 1u << buffer;
    turn ^= 1;
  }
};

}  // namespace tessera::fmha_tcgen05
