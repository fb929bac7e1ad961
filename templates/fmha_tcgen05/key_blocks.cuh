// Which keys a query sees, and which blocks of tile_n keys each of a tile's Q tiles needs.
//
// Key blocks are taken from the last to the first. A Q tile leaves out the blocks that none of its rows sees: those
// behind the causal diagonal, and those on either side of a window. Where valid lengths are read from memory, the last
// block ends with the last valid key, so that nothing behind it is ever loaded: it may hold anything, and 0 times a NaN
// is one. Block 0 begins before key 0 then, and TMA fills with zeros what lies there.
#pragma once

#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/global.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// Valid queries and keys of a sequence.
struct Lengths {
  int q;
  int k;
};

template <Config C>
__device__ __forceinline__ Lengths lengths_of(const Params& p, int batch) {
  Lengths lengths{p.seqlen_q, p.seqlen_k};
  const auto used = [&](const int* lengths_of_batch, int length) {
    return min(max(static_cast<int>(ptx::ld_global_u32(lengths_of_batch + batch)), 0), length);
  };
  if constexpr (C.seqused == UsedLengths::qk) lengths.q = used(p.seqused_q, p.seqlen_q);
  if constexpr (C.seqused != UsedLengths::none) lengths.k = used(p.seqused_k, p.seqlen_k);
  return lengths;
}

// No key for any query: nothing of K and V is there to be loaded. Each tile works on one block then.
template <Config C>
__device__ __forceinline__ bool has_no_keys(const Params& p) {
  if constexpr (has_pools(C)) return p.seqlen_swa == 0 && (p.topk == 0 || p.seqlen_k == 0);
  return p.seqlen_k == 0;
}

// Keys [begin, end); none where end <= begin.
struct Keys {
  int begin;
  int end;
};

// Key blocks [begin, end), at least one. `is_hidden`: there was none, so that this one is hidden from all rows.
struct Blocks {
  int begin;
  int end;
  bool is_hidden = false;
  __device__ __forceinline__ bool has(int block) const { return begin <= block && block < end; }
};

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
        origin(C.seqused == UsedLengths::none ? 0 : lengths.k - (lengths.k + C.tile_n - 1) / C.tile_n * C.tile_n) {}

  // The key at which a block begins.
  __device__ __forceinline__ int key_of(int block) const { return block * C.tile_n + origin; }

  __device__ __forceinline__ Keys visible(int query) const {
    if (C.seqused == UsedLengths::qk && query >= lengths.q) return {0, 0};
    const int beside = query + lengths.k - lengths.q;
    Keys keys{0, lengths.k};
    if constexpr (C.mask == Mask::causal) keys.end = min(lengths.k, beside + 1);
    if constexpr (C.window == Window::sliding) {
      // Sizes may be as large as an int: no sum may exceed one.
      if (p.window_size_left >= 0 && p.window_size_left < beside) keys.begin = beside - p.window_size_left;
      if (p.window_size_right >= 0 && p.window_size_right < keys.end - beside)
        keys.end = min(keys.end, beside + 1 + p.window_size_right);
    }
    return keys;
  }

  // What some consecutive packed rows see. Both ends grow with the row. Where no key is seen block 0 is worked on,
  // which the masks hide wholly, so that no role needs a special case.
  __device__ __forceinline__ Blocks of_rows(int begin_row, int end_row) const {
    const int begin_query = begin_row / padded_heads(C);
    const int last_query = min((end_row - 1) / padded_heads(C), lengths.q - 1);
    const int end_key = begin_query < lengths.q ? visible(last_query).end : 0;
    if (end_key <= 0) return {0, 1, true};
    const int begin_key = hides_first_keys(C) ? visible(begin_query).begin : 0;
    return {(begin_key - origin) / C.tile_n, (end_key - origin + C.tile_n - 1) / C.tile_n};
  }

  // The tile's part of what its rows see: equal numbers of blocks for all parts but the last ones. A part that is left
  // without any works on the block behind the last visible key.
  __device__ __forceinline__ Blocks of_tile() const {
    const int begin_row = tile.m * used_rows_of_tile(C);
    const Blocks all = of_rows(begin_row, begin_row + used_rows_of_tile(C));
    if constexpr (is_split(C)) {
      if (all.is_hidden) return all;
      const int blocks = quotient(all.end - all.begin + p.num_splits - 1, p.num_splits);
      const int begin = all.begin + min(tile.split, all.end) * blocks;
      if (begin >= all.end) return {all.end, all.end + 1, true};
      return {begin, min(begin + blocks, all.end)};
    }
    return all;
  }

  // Of one Q tile, within its tile's blocks. One that sees nothing takes the last of these, where the masks hide all
  // from its rows.
  __device__ __forceinline__ Blocks of_q_tile(int q_tile) const {
    const Blocks all = of_tile();
    if constexpr (q_tiles(C) == 1) return all;
    const int begin_row = tile.m * used_rows_of_tile(C) + q_tile * used_rows_of_product(C);
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
