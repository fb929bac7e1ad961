// Which keys a row sees, and which blocks of tile_n keys a tile needs.
//
// Key blocks are taken from the last to the first. A tile leaves out the blocks that none of its rows sees: those
// behind the causal diagonal, and those on either side of a window. Where valid lengths are read from memory, the last
// block ends with the last valid key, so that nothing behind it is ever loaded: it may hold anything, and 0 times a NaN
// is one. Block 0 begins before key 0 then, and TMA fills with zeros what lies there. Keys that do not lie dense begin
// with block 0, and what is behind the last one is left out as paged_load.cuh says.
#pragma once

#include "attention/pools.cuh"
#include "attention/visible_keys.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "ptx/address.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

using attention::Blocks;
using attention::Keys;
using attention::Lengths;

// Of a tile's sequence. One beyond the last tile counts as the last sequence's.
template <Config C>
__device__ __forceinline__ Lengths lengths_of(const Params& p, const TileIndex& tile) {
  if constexpr (!reads_lengths(C.facts)) return {p.seqlen_k, p.seqlen_q};
  if constexpr (knows_sequence(C)) {
    Lengths lengths = attention::lengths_of<C>(p, min(tile.sequence, p.batch - 1));
    lengths.q = tile.queries;
    return lengths;
  }
  const int sequence = min(quotient(tile.head, tile_heads<C>(p)), p.batch - 1);
  if constexpr (is_ragged(C.facts)) {
    Lengths lengths = attention::lengths_of<C>(p, sequence);
    lengths.q = queries_of<C>(p, sequence);
    return lengths;
  }
  return attention::lengths_of<C>(p, sequence);
}

// Rows of a head of a sequence.
template <Config C>
__device__ __forceinline__ int rows_of(const Params& p, const Lengths& lengths) {
  return is_ragged(C.facts) ? lengths.q * C.pack_gqa : rows_of_head<C>(p);
}

// The query of a row. Beside transposed V found where it is asked for: kept through a loop it takes registers that are
// not left.
template <Config C>
__device__ __forceinline__ int query_of_row(int row) {
  return (transposes_v(C) && C.pack_gqa > 1 ? ptx::forget(row) : row) / C.pack_gqa;
}
template <Config C>
__device__ __forceinline__ Keys visible_keys(const Params& p, const Lengths& lengths, int row) {
  return attention::visible_keys<C>(p, lengths, row / C.pack_gqa);
}
// The end alone, which may be negative. Without windows and used lengths from parameters only: the assembler's code for
// the usual kernels is a matter of such lines.
template <Config C>
__device__ __forceinline__ int visible_end(const Params& p, const Lengths& lengths, int row) {
  if constexpr (hides_first_keys(C.facts) || reads_lengths(C.facts)) return visible_keys<C>(p, lengths, row).end;
  return C.facts.mask == Mask::causal ? min(p.seqlen_k, query_of_row<C>(row) + 1 + p.seqlen_k - p.seqlen_q)
                                      : p.seqlen_k;
}

// Key blocks that rows before `end_row` see where all begin with key 0, at least one: see of_rows.
template <Config C>
__device__ __forceinline__ int key_blocks(const Params& p, int end_row) {
  const int keys = visible_end<C>(p, {}, min(end_row, rows_of_head<C>(p)) - 1);
  return keys <= 0 ? 1 : (keys + C.tile_n - 1) / C.tile_n;
}

template <Config C>
struct KeyBlocks {
  const Params& p;
  const Lengths lengths;
  const int origin;  // key at which block 0 begins: 0, or less

  __device__ __forceinline__ KeyBlocks(const Params& params, const Lengths& of_sequence)
      : p(params),
        lengths(of_sequence),
        origin(!ends_with_last_key(C.facts) ? 0 : lengths.k - (lengths.k + C.tile_n - 1) / C.tile_n * C.tile_n) {}

  // The key at which a block begins.
  __device__ __forceinline__ int key_of(int block) const { return block * C.tile_n + origin; }

  // What the rows [begin_row, end_row) see, of which the first is one of the head's. Where they see none it is block 0,
  // which the mask hides wholly, so that no role needs a special case.
  __device__ __forceinline__ Blocks of_rows(int begin_row, int end_row) const {
    int last_row = min(end_row, rows_of<C>(p, lengths)) - 1;
    if constexpr (C.facts.seqused == UsedLengths::qk) {
      if (begin_row >= lengths.q * C.pack_gqa) return {0, 1, true};
      last_row = min(last_row, lengths.q * C.pack_gqa - 1);
    }
    const int end_key = visible_end<C>(p, lengths, last_row);
    if (end_key <= 0) return {0, 1, true};
    const int begin_key = hides_first_keys(C.facts) ? visible_keys<C>(p, lengths, begin_row).begin : 0;
    return {(begin_key - origin) / C.tile_n, (end_key - origin + C.tile_n - 1) / C.tile_n};
  }

  // A tile's part of what its rows see.
  __device__ __forceinline__ Blocks of_tile(const TileIndex& tile) const {
    const Blocks all = of_rows(tile.m * C.tile_m, (tile.m + 1) * C.tile_m);
    if constexpr (is_dealt(C)) return {all.begin + tile.begin, all.begin + tile.end, all.is_hidden};
    if constexpr (is_split(C) && has_split_size(C.facts))
      return attention::sized_part_of<blocks_of_part(C.facts, C.tile_n)>(all, tile.split);
    if constexpr (is_split(C)) return attention::part_of(all, tile.split, p.num_splits);
    return all;
  }

  // Of these those at the end that none of the 64 rows from `begin_row` on sees; all but one where these see nothing.
  __device__ __forceinline__ int hidden_of(const Blocks& of_tile, int begin_row) const {
    const int seen = begin_row < rows_of<C>(p, lengths) ? of_rows(begin_row, begin_row + kRowsPerWarpgroup).end : 0;
    return of_tile.end - min(max(seen, of_tile.begin + 1), of_tile.end);
  }
};

// Two pools of keys: those of a tile stand in one row, the places of its query's list and behind them the window.
struct PooledKeys {
  int batch;
  int query;
  int listed;  // places of the list: none in a pool of no rows
  int end;     // of all
};

// A tile beyond the last one counts as the last sequence's.
template <Config C>
__device__ __forceinline__ PooledKeys pooled_keys(const Params& p, const TileIndex& tile) {
  const int batch = min(quotient(tile.head, tile_heads<C>(p)), p.batch - 1);
  const int query = tile.m * C.tile_m / padded_heads(C);
  const int listed = attention::list_length(p, batch, query);
  return {batch, query, listed, listed + attention::window_end<C>(p, batch, query)};
}
// At least one, whose keys are none.
template <Config C>
__device__ __forceinline__ int pooled_blocks(const Params& p, const TileIndex& tile) {
  return max((pooled_keys<C>(p, tile).end + C.tile_n - 1) / C.tile_n, 1);
}

// What a tile's loads walk over: `count` blocks, the last of which ends at key `end`. A tile that sees no key takes
// rows past the sequence's end instead, which are zeros: 0 * V must not meet an infinity.
struct LoadedKeys {
  int end;
  int count;
};

// Where they end.
template <Config C>
__device__ __forceinline__ int end_of_loads(const Params& p, const KeyBlocks<C>& keys, const Blocks& of_tile) {
  return of_tile.is_hidden ? max(p.seqlen_k, 1) + C.tile_n : keys.key_of(of_tile.end);
}

template <Config C>
__device__ __forceinline__ LoadedKeys loaded_keys(const Params& p, const TileIndex& tile) {
  if constexpr (has_pools(C)) {
    const int blocks = pooled_blocks<C>(p, tile);
    return {blocks * C.tile_n, blocks};
  }
  if constexpr (has_first_key(C)) {
    const KeyBlocks<C> keys(p, lengths_of<C>(p, tile));
    const Blocks blocks = keys.of_tile(tile);
    return {end_of_loads(p, keys, blocks), blocks.end - blocks.begin};
  }
  const int end_row = min((tile.m + 1) * C.tile_m, rows_of_head<C>(p));
  const int blocks = key_blocks<C>(p, end_row);
  const bool sees_none = visible_end<C>(p, {}, end_row - 1) <= 0;
  return {sees_none ? max(p.seqlen_k, 1) + C.tile_n : blocks * C.tile_n, blocks};
}

}  // namespace tessera::fmha
