// Which tiles a CTA takes.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others, and no
// memory is needed to share a counter. Round r gives CTA c item r * grid + c. Items of one head follow each other, so
// that CTAs that run at the same time share K and V in the L2.
//
// With the causal mask, a tile's work grows with its place in the sequence. An item is then a pair of tiles of one
// head, the i-th and the i-th from the end: all pairs are equally long. A grid with few items for each CTA would lose
// much to the last, partly filled round; it takes single tiles instead, the longest of all heads first, every second
// round backwards, so that long and short add up.
//
// Beside 8-bit products tiles of equal work that do not fill the last round are shared there: several CTAs take one,
// each for some of its warpgroups.
//
// Where keys are split, an item is a part of a tile's keys, and the parts of a tile follow each other.
#pragma once

#include "attention/ragged_queries.cuh"
#include "fmha/params.cuh"
#include "ptx/global.cuh"
#include "ptx/griddepcontrol.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

using attention::first_query;
using attention::queries_of;

inline constexpr int kSharesKeys = -2;  // in place of TileIndex::split

struct TileIndex {
  int m;          // tile along the rows
  int head;       // of Q, or of K where heads are packed, of all batches: those of one batch follow each other
  int split = 0;  // which part of its keys; where they are dealt, the slot of its parts, or -1: it is whole;
                  // kSharesKeys: and other tiles of its sequence are worked on at the same time; shares_tiles(): a
                  // bit for each warpgroup that works on it, 0: all do
  int begin = 0;  // dealt keys: its blocks [begin, end), counted from the first that the tile needs
  int end = 0;
  // Where knows_sequence(). A tile beyond the last has the sequence behind the last, which has no queries.
  int sequence = 0;
  int first_query = 0;
  int queries = 0;
};

// The head as tensors count it.
struct HeadIndex {
  int head;
  int batch;
};

// Which of the tile's CTAs this one is: their columns lie side by side in this order.
template <Config C>
__device__ __forceinline__ int cta_of_tile() {
  return C.cta_pair ? static_cast<int>(blockIdx.x) % 2 : 0;
}

// Of numbers that are not negative. Unsigned: a division is a routine of the assembler's, and a signed one is half as
// long again. A remainder is computed from the quotient: the compiler would divide twice.
__device__ __forceinline__ int quotient(int x, int y) {
  return static_cast<int>(static_cast<unsigned>(x) / static_cast<unsigned>(y));
}

// Rows of a head: its queries, or those of all heads that are packed, the heads of a query side by side.
template <Config C>
__device__ __forceinline__ int rows_of_head(const Params& p) {
  return p.seqlen_q * padded_heads(C);
}
// The place of a sequence among those of a tensor map of q or o, and of a query of its in lse and its like.
template <Config C>
__device__ __forceinline__ int sequence_of_map(const HeadIndex& at) {
  return is_ragged(C.facts) ? 0 : at.batch;
}
// Packed heads: the first in a box of Q or O that begins at a row.
template <Config C>
__device__ __forceinline__ int head_of_box(int row) {
  return padded_heads(C) > rows_of_box(C) ? row % padded_heads(C) : 0;
}
// Heads that have tiles of their own.
template <Config C>
__device__ __forceinline__ int tile_heads(const Params& p) {
  return is_packed(C) ? p.heads_kv : p.heads_q;
}

template <Config C>
struct Schedule {
  const Params& p;
  const int m_tiles;
  const int heads;  // of all batches
  const bool is_paired;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        m_tiles((rows_of_head<C>(params) + C.tile_m - 1) / C.tile_m),
        heads(params.batch * tile_heads<C>(params)),
        is_paired(is_uneven(C.facts) && !is_split(C) && fills_rounds(heads * pairs())) {}

  // A pair of CTAs counts as one.
  static __device__ __forceinline__ int grid() { return static_cast<int>(gridDim.x) / ctas_per_tile(C); }
  // At most a tenth of the rounds' places stays empty.
  static __device__ __forceinline__ bool fills_rounds(int items) {
    const int rounds = quotient(items + grid() - 1, grid());
    return rounds * grid() - items <= items / 10;
  }
  __device__ __forceinline__ int pairs() const { return (m_tiles + 1) / 2; }  // of a head

  __device__ __forceinline__ int item(int round) const {
    const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C);
    if (is_paired) return round / 2 * grid() + cta;
    const bool is_backwards = is_uneven(C.facts) && round % 2 == 1;
    return round * grid() + (is_backwards ? grid() - 1 - cta : cta);
  }

  // Whether this CTA has a tile in `round`; if not, it has none later.
  __device__ __forceinline__ bool has(int round) const {
    return item(round) < heads * (is_paired ? pairs() : m_tiles) * (is_split(C) ? p.num_splits : 1);
  }

  // The round after that of `tile`. The middle tile of an odd number is a pair by itself.
  __device__ __forceinline__ int next(int round, const TileIndex& tile) const {
    return round + (is_paired && 2 * tile.m == m_tiles - 1 ? 2 : 1);
  }

  __device__ __forceinline__ TileIndex at(int round) const {
    const int part = item(round);
    const int i = is_split(C) ? quotient(part, p.num_splits) : part;
    const int split = is_split(C) ? part - i * p.num_splits : 0;
    // Items of one head lie side by side, or those of one tile of every head.
    const bool is_by_tile = is_uneven(C.facts) && !is_paired;
    const int divisor = is_by_tile ? heads : is_paired ? pairs() : m_tiles;
    const int high = quotient(i, divisor);
    const int low = i - high * divisor;
    if (is_by_tile) return {m_tiles - 1 - high, low, split};
    return {is_paired && round % 2 == 0 ? m_tiles - 1 - low : low, high, split};
  }
};

template <Config C>
__device__ constexpr bool shares_tiles() {
  const bool sees_all =
      C.facts.mask == Mask::none && C.facts.window == Window::none && C.facts.seqused == UsedLengths::none;
  return sees_all && transposes_v(C) && !is_split(C) && !is_ragged(C.facts) && consumer_warpgroups(C) > 1;
}
// Whether a warpgroup works on a tile.
__device__ __forceinline__ bool works_on(const TileIndex& tile, int warpgroup) {
  return tile.split == 0 || (tile.split >> warpgroup) % 2 == 1;
}

template <Config C>
requires(shares_tiles<C>()) struct Schedule<C> {
  const Params& p;
  const int m_tiles;
  const int tiles;
  const int first_shared;  // behind full rounds
  int sharing = 1;         // how many CTAs take one together

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        m_tiles((rows_of_head<C>(params) + C.tile_m - 1) / C.tile_m),
        tiles(params.batch * tile_heads<C>(params) * m_tiles),
        first_shared(quotient(tiles, grid()) * grid()) {
    if (tiles > first_shared) sharing = min(quotient(grid(), tiles - first_shared), consumer_warpgroups(C));
  }

  static __device__ __forceinline__ int grid() { return static_cast<int>(gridDim.x); }
  static __device__ __forceinline__ int item(int round) { return round * grid() + static_cast<int>(blockIdx.x); }

  __device__ __forceinline__ bool has(int round) const {
    return item(round) < first_shared + (tiles - first_shared) * sharing;
  }
  __device__ __forceinline__ int next(int round, const TileIndex& /*tile*/) const { return round + 1; }

  // Items of one head lie side by side.
  __device__ __forceinline__ TileIndex at(int round) const {
    int i = item(round), warpgroups = 0;
    if (sharing > 1 && i >= first_shared) {
      const int width = quotient(consumer_warpgroups(C) + sharing - 1, sharing);
      const int tile = quotient(i - first_shared, sharing);
      warpgroups = ((1 << width) - 1) << (i - first_shared - tile * sharing) * width;
      i = first_shared + tile;
    }
    const int head = quotient(i, m_tiles);
    return {i - head * m_tiles, head, warpgroups};
  }
};

// The warp of Q of a kernel that asks ahead, which finds its tile by parameters alone unless keys are dealt: the wait
// before its first load.
template <Config C>
__device__ __forceinline__ void wait_with_tile(int round) {
  if constexpr (asks_ahead(C) && !is_dealt(C)) {
    if (round == 0) ptx::griddepcontrol_wait();
  }
}

// Dealt keys: where the parts of a slot lie, `row` of a tile. No more rows than there are take places.
template <Config C>
__device__ __forceinline__ int rows_of_slot(const Params& p) {
  return min(C.tile_m, rows_of_head<C>(p));
}
template <Config C>
__device__ __forceinline__ long long part_row(const Params& p, int slot, int row) {
  return static_cast<long long>(slot) * rows_of_slot<C>(p) + row;
}

// Where knows_sequence(): tells a tile of its sequence.
template <Config C>
__device__ __forceinline__ void know_sequence(const Params& p, TileIndex& tile, int sequence) {
  if constexpr (!knows_sequence(C)) return;
  tile.sequence = sequence;
  tile.first_query = first_query<C>(p, sequence);
  tile.queries = queries_of<C>(p, sequence);
}

template <Config C>
__device__ __forceinline__ HeadIndex head_of(const Params& p, const TileIndex& tile) {
  const int heads = tile_heads<C>(p);
  if constexpr (knows_sequence(C)) return {tile.head - tile.sequence * heads, tile.sequence};
  const int batch = quotient(tile.head, heads);
  return {tile.head - batch * heads, batch};
}

}  // namespace tessera::fmha
