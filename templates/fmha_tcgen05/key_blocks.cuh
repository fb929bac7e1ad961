// Which keys a query sees, and which blocks of tile_n keys each of a tile's Q tiles needs.
//
// Key blocks are taken from the last to the first. A Q tile leaves out the blocks that none of its rows sees: those
// behind the causal diagonal, and those on either side of a window. Where valid lengths are read from memory, the last
// block ends with the last valid key, so that nothing behind it is ever loaded: it may hold anything, and 0 times a NaN
// is one. Block 0 begins before key 0 then, and TMA fills with zeros what lies there. Keys that do not lie dense begin
// with block 0, and what is behind the last one is left out as attention/placed_keys.cuh says.
#pragma once

#include "attention/visible_keys.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

using attention::Blocks;
using attention::Keys;
using attention::Lengths;

// No key for any query: nothing of K and V is there to be loaded. Each tile works on one block then.
template <Config C>
__device__ __forceinline__ bool has_no_keys(const Params& p) {
  if constexpr (has_pools(C.facts)) return p.seqlen_swa == 0 && (p.topk == 0 || p.seqlen_k == 0);
  return p.seqlen_k == 0;
}

// Of a sequence.
template <Config C>
__device__ __forceinline__ Lengths lengths_of(const Params& p, int batch) {
  Lengths lengths = attention::lengths_of<C>(p, batch);
  if constexpr (is_ragged(C.facts)) lengths.q = queries_of<C>(p, batch);
  return lengths;
}

// Of one tile.
template <Config C, bool kHasPools = has_pools(C)>
struct KeyBlocks {
  const Params& p;
  const TileIndex& tile;
  const Lengths lengths;
  const int origin;  // key at which block 0 begins: 0, or less

  __device__ __forceinline__ KeyBlocks(const Params& params, const TileIndex& of_tile)
      : p(params),
        tile(of_tile),
        lengths(lengths_of<C>(params, of_tile.batch)),
        origin(!ends_with_last_key(C.facts) ? 0 : lengths.k - (lengths.k + C.tile_n - 1) / C.tile_n * C.tile_n) {}

  // The key at which a block begins.
  __device__ __forceinline__ int key_of(int block) const { return block * C.tile_n + origin; }

  __device__ __forceinline__ Keys visible(int query) const { return attention::visible_keys<C>(p, lengths, query); }

  // What some consecutive packed rows see. Both ends grow with the row. Where no key is seen block 0 is worked on,
  // which the masks hide wholly, so that no role needs a special case.
  __device__ __forceinline__ Blocks of_rows(int begin_row, int end_row) const {
    const int begin_query = begin_row / padded_heads(C);
    const int last_query = min((end_row - 1) / padded_heads(C), lengths.q - 1);
    const int end_key = begin_query < lengths.q ? visible(last_query).end : 0;
    if (end_key <= 0) return {0, 1, true};
    const int begin_key = hides_first_keys(C.facts) ? visible(begin_query).begin : 0;
    return {(begin_key - origin) / C.tile_n, (end_key - origin + C.tile_n - 1) / C.tile_n};
  }

  // The tile's part of what its rows see.
  __device__ __forceinline__ Blocks of_tile() const {
    const int begin_row = tile.m * used_rows_of_tile(C);
    const Blocks all = of_rows(begin_row, begin_row + used_rows_of_tile(C));
    if constexpr (is_split(C) && has_split_size(C.facts))
      return attention::sized_part_of<blocks_of_part(C.facts, C.tile_n)>(all, tile.split);
    if constexpr (is_split(C)) return attention::part_of(all, tile.split, p.num_splits);
    return all;
  }

  // Of one Q tile, within its tile's blocks. One that sees nothing takes the last of these, where the masks hide all
  // from its rows.
  __device__ __forceinline__ Blocks of_q_tile(int q_tile) const {
    const Blocks all = of_tile();
    if constexpr (q_tiles(C) == 1) return all;
    const int begin_row = tile.m * used_rows_of_tile(C) + place_of_q_tile<C>(q_tile) * used_rows_of_product(C);
    Blocks own = of_rows(begin_row, begin_row + used_rows_of_product(C));
    if constexpr (is_split(C)) {
      own.begin = max(own.begin, all.begin);
      own.end = min(own.end, all.end);
      if (own.begin >= own.end) own.is_hidden = true;
    }
    if (own.is_hidden) return {all.end - 1, all.end};
    return own;
  }
};

}  // namespace tessera::fmha_tcgen05
