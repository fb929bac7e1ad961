// Which tiles a CTA (or a pair) takes.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives CTA c item r * grid + c. Items of one head follow each other, so that CTAs that run at the same time share K
// and V in the L2. With the causal mask a tile's work grows with its place in the sequence: the longest tiles of all
// heads come first, and every second round goes backwards, so that long and short add up.
#pragma once

#include "attention/ragged_queries.cuh"
#include "fmha_tcgen05/params.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

using attention::first_query;
using attention::queries_of;

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

// Ragged queries: a sequence's tiles follow from its own length. Each round a CTA goes on by as many items as there are
// CTAs, through the items of one sequence after the other, which stand in the order above. Each thread walks on its
// own: at() once in each round, in their order.
template <Config C>
requires(is_ragged(C.facts)) struct Schedule<C> {
  const Params& p;
  mutable int sequence = 0;  // of the next round
  mutable int item;          // among those of the sequence
  mutable bool is_backwards = false;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params), item(static_cast<int>(blockIdx.x) / ctas_per_tile(C)) {
    find();
  }

  __device__ __forceinline__ int tiles_of_head() const {
    return (queries_of<C>(p, sequence) * padded_heads(C) + used_rows_of_tile(C) - 1) / used_rows_of_tile(C);
  }
  // Leaves sequences behind that the item lies behind.
  __device__ __forceinline__ void find() const {
    const int of_tiles = p.heads_q / C.pack_gqa * (is_split(C) ? p.num_splits : 1);
#pragma unroll 1
    for (; sequence < p.batch; ++sequence) {
      const int items = tiles_of_head() * of_tiles;
      if (item < items) return;
      item -= items;
    }
  }

  __device__ __forceinline__ bool has(int /*round*/) const { return sequence < p.batch; }

  __device__ __forceinline__ TileIndex at(int /*round*/) const {
    const int tiles = tiles_of_head(), heads = p.heads_q / C.pack_gqa;
    const int i = is_split(C) ? quotient(item, p.num_splits) : item;
    const int split = is_split(C) ? item - i * p.num_splits : 0;
    const int high = quotient(i, is_uneven(C.facts) ? heads : tiles);
    const int low = i - high * (is_uneven(C.facts) ? heads : tiles);
    const TileIndex tile =
        is_uneven(C.facts) ? TileIndex{tiles - 1 - high, low, sequence, split} : TileIndex{low, high, sequence, split};
    const int grid = static_cast<int>(gridDim.x) / ctas_per_tile(C);
    const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C);
    if constexpr (is_uneven(C.facts)) {
      // To the CTA's place in the next round, counted from the other end of it.
      item += 2 * (is_backwards ? cta : grid - 1 - cta) + 1;
      is_backwards = !is_backwards;
    } else {
      item += grid;
    }
    find();
    return tile;
  }
};

// Where a Q tile stands among those of its tile. With the causal mask the later rows come first: they have more keys,
// and whoever begins with the last of them is served first from then on.
template <Config C>
__device__ __forceinline__ int place_of_q_tile(int q_tile) {
  return q_tiles(C) == 2 && is_uneven(C.facts) ? 1 - q_tile : q_tile;
}

// Packed row of the sequence where this CTA's rows of a Q tile begin.
template <Config C>
__device__ __forceinline__ int first_row(const TileIndex& tile, int q_tile) {
  return tile.m * used_rows_of_tile(C) + place_of_q_tile<C>(q_tile) * used_rows_of_product(C) +
         cta_of_tile<C>() * used_rows(C);
}

// Its head among those that share a key head: rows that are none count as the last one's.
template <Config C>
__device__ __forceinline__ int head_of_row(int row) {
  const int head = row % padded_heads(C);
  return padded_heads(C) == C.pack_gqa ? head : min(head, C.pack_gqa - 1);
}
// Whether it is a row of the output. `place`: among the CTA's.
template <Config C>
__device__ __forceinline__ bool is_used_row(const Params& p, const TileIndex& tile, int row, int place) {
  const bool is_head = padded_heads(C) == C.pack_gqa || row % padded_heads(C) < C.pack_gqa;
  return row / padded_heads(C) < queries_of<C>(p, tile.batch) && place < used_rows(C) && is_head;
}

// Place of a row among all rows of the output: [batch, heads_q, seqlen_q], ragged [heads_q, seqlen_q].
template <Config C>
__device__ __forceinline__ long long row_index(const Params& p, const TileIndex& tile, int head, int query) {
  const int batch = is_ragged(C.facts) ? 0 : tile.batch;
  return (static_cast<long long>(batch) * p.heads_q + head) * p.seqlen_q + first_query<C>(p, tile.batch) + query;
}
template <Config C>
__device__ __forceinline__ long long num_rows(const Params& p) {
  return static_cast<long long>(is_ragged(C.facts) ? 1 : p.batch) * p.heads_q * p.seqlen_q;
}

// The place of a tile's sequence among those of a tensor map of q or o.
template <Config C>
__device__ __forceinline__ int sequence_of_map(const TileIndex& tile) {
  return is_ragged(C.facts) ? 0 : tile.batch;
}
// Ragged: whether all of this CTA's rows of a Q tile are rows of its sequence, so that a box may store them. Else the
// rows behind belong to the next sequence.
template <Config C>
__device__ __forceinline__ bool fills_box(const Params& p, const TileIndex& tile, int q_tile) {
  if constexpr (!is_ragged(C.facts)) return true;
  return first_row<C>(tile, q_tile) + used_rows(C) <= queries_of<C>(p, tile.batch) * padded_heads(C);
}

// Which buffer of S a step of a Q tile has, which slot of barriers and factors, and their parity. Two Q tiles have one
// buffer each, or all their steps take three in turn; one Q tile takes turns. Every role that follows a Q tile's steps
// counts for itself, of three buffers the other Q tile's steps too.
template <Config C>
struct BufferPosition {
  unsigned parities = 0;  // bit i: of the phase that comes next in slot i
  int turn = 0;

  __device__ __forceinline__ int buffer(int q_tile) const {
    return q_tiles(C) == 2 && !has_third_buffer(C) ? q_tile : turn;
  }
  __device__ __forceinline__ int slot(int q_tile) const {
    return has_third_buffer(C) ? 3 * q_tile + turn : buffer(q_tile);
  }
  __device__ __forceinline__ unsigned parity(int slot) const { return parities >> slot & 1; }
  // Past a step of the other Q tile.
  __device__ __forceinline__ void pass() {
    if constexpr (has_third_buffer(C)) {
      turn = turn == 2 ? 0 : turn + 1;
    } else {
      turn ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int slot) {
    parities ^= 1u << slot;
    pass();
  }
};

}  // namespace tessera::fmha_tcgen05
