// Which tiles a CTA (or a pair) takes, and which key blocks each of a tile's Q tiles needs.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives CTA c item r * grid + c. Items of one head follow each other, so that CTAs that run at the same time share K
// and V in the L2. With the causal mask a tile's work grows with its place in the sequence: the longest tiles of all
// heads come first, and every second round goes backwards, so that long and short add up.
//
// Key blocks are taken from the last to the first. A Q tile leaves out the blocks that none of its rows sees.
#pragma once

#include "fmha_tcgen05/params.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

struct TileIndex {
  int m;     // tile along the queries
  int head;  // of Q
  int batch;
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
  const int items;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        m_tiles((params.seqlen_q + C.tile_m - 1) / C.tile_m),
        items(m_tiles * params.heads_q * params.batch) {}

  __device__ __forceinline__ int item(int round) const {
    const int grid = static_cast<int>(gridDim.x) / ctas_per_tile(C);
    const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C);
    const bool is_backwards = C.mask == Mask::causal && round % 2 == 1;
    return round * grid + (is_backwards ? grid - 1 - cta : cta);
  }
  // Whether this CTA has a tile in `round`; if not, it has none later.
  __device__ __forceinline__ bool has(int round) const { return item(round) < items; }

  __device__ __forceinline__ TileIndex at(int round) const {
    const int i = item(round);
    int m, head;
    if constexpr (C.mask == Mask::causal) {
      const int heads = p.heads_q * p.batch;
      const int from_end = quotient(i, heads);
      m = m_tiles - 1 - from_end;
      head = i - from_end * heads;
    } else {
      head = quotient(i, m_tiles);
      m = i - head * m_tiles;
    }
    const int batch = quotient(head, p.heads_q);
    return {m, head - batch * p.heads_q, batch};
  }
};

// Row of the sequence where this CTA's rows of a Q tile begin.
template <Config C>
__device__ __forceinline__ int first_row(const TileIndex& tile, int q_tile) {
  return tile.m * C.tile_m + q_tile * rows_per_product(C) + cta_of_tile<C>() * rows_per_cta(C);
}

// The keys before this one are seen by query `row`; may be negative.
template <Config C>
__device__ __forceinline__ int visible_end(const Params& p, int row) {
  return C.mask == Mask::causal ? min(p.seqlen_k, row + 1 + p.seqlen_k - p.seqlen_q) : p.seqlen_k;
}

// Key blocks [begin, end).
struct Blocks {
  int begin;
  int end;
  __device__ __forceinline__ bool has(int block) const { return begin <= block && block < end; }
};

// What the rows of some consecutive Q tiles see, at least one block: a tile that sees no key works on one block that
// the mask hides wholly, so that no role needs a special case.
template <Config C>
__device__ __forceinline__ Blocks blocks_of_rows(const Params& p, int end_row) {
  const int keys = visible_end<C>(p, min(end_row, p.seqlen_q) - 1);
  return {0, keys <= 0 ? 1 : (keys + C.tile_n - 1) / C.tile_n};
}

template <Config C>
__device__ __forceinline__ Blocks blocks_of_tile(const Params& p, const TileIndex& tile) {
  return blocks_of_rows<C>(p, (tile.m + 1) * C.tile_m);
}

// Of one Q tile, within its tile's blocks. One that lies past the last query has nothing to do and takes one block.
template <Config C>
__device__ __forceinline__ Blocks blocks_of_q_tile(const Params& p, const TileIndex& tile, int q_tile) {
  const Blocks all = blocks_of_tile<C>(p, tile);
  if constexpr (q_tiles(C) == 1) return all;
  const int begin_row = tile.m * C.tile_m + q_tile * rows_per_product(C);
  if (begin_row >= p.seqlen_q) return {all.end - 1, all.end};
  return blocks_of_rows<C>(p, begin_row + rows_per_product(C));
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
