// Ragged sequences: which tiles a CTA takes.
//
// As schedule.cuh deals, but a sequence's tiles follow from its own length: each round a CTA goes on by as many items
// as there are CTAs, through the items of one sequence after the other. An item is a tile. Where work grows with a
// tile's place it is a pair of tiles of one head, the i-th and the i-th from the end, so that all pairs of a sequence
// are equally long; or, where pairs would leave the last round partly empty, a single tile, the longest of all heads of
// the sequence first, every second round backwards. Each thread walks on its own, in the order of rounds.
//
// Tiles of equal work that do not fill the last round are shared there: several CTAs take one, each the rows of some of
// its warpgroups, which are told as a sequence of these rows alone. Where every row sees all keys nothing depends on
// its place.
#pragma once

#include "fmha/dealer.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
__device__ constexpr bool shares_last_round() {
  const bool sees_all = C.facts.mask == Mask::none && C.facts.window == Window::none &&
                        C.facts.seqused != UsedLengths::qk && C.facts.alibi == Alibi::none &&
                        C.facts.tree_mask == TreeMask::none;
  return sees_all && passes_tiles(C) && !is_dealt(C) && !uses_mma_sync(C) && !C.cta_pair &&
         consumer_warpgroups(C) > 1 && C.pack_gqa == 1;
}

template <Config C>
requires(is_ragged(C.facts) && !is_dealt(C)) struct Schedule<C> {
  const Params& p;
  const bool is_paired;
  mutable int sequence = 0;     // of the next round
  mutable int item;             // among those of the sequence
  mutable bool is_odd = false;  // the other tile of a pair comes next; of single tiles: the round goes backwards
  // Of tiles whose last round is shared.
  mutable int full_rounds = 0;  // that are left
  int sharing = 1;              // CTAs that take a tile together
  int shared_items = 0;         // of the last round

  // By whole warps.
  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params), is_paired(is_uneven(C.facts) && pairs_fill_rounds(params)), item(cta()) {
    if constexpr (shares_last_round<C>()) {
      const int tiles = all_tiles(params);
      full_rounds = quotient(tiles, grid());
      const int left = tiles - full_rounds * grid();
      if (left > 0) sharing = min(quotient(grid(), left), consumer_warpgroups(C));
      shared_items = left * sharing;
      if (full_rounds == 0) item = first_of_last_round(0);
    }
    find();
  }

  static __device__ __forceinline__ int grid() { return static_cast<int>(gridDim.x) / ctas_per_tile(C); }
  static __device__ __forceinline__ int cta() { return static_cast<int>(blockIdx.x) / ctas_per_tile(C); }
  static __device__ __forceinline__ int all_tiles(const Params& p) {
    int tiles = 0;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 32; i < p.batch; i += 32) tiles += tiles_of_head<C>(p, i);
    return __reduce_add_sync(0xffffffff, tiles) * tile_heads<C>(p);
  }
  // At most a part of the rounds' places stays empty.
  static __device__ __forceinline__ bool pairs_fill_rounds(const Params& p) {
    int pairs = 0;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 32; i < p.batch; i += 32) pairs += (tiles_of_head<C>(p, i) + 1) / 2;
    pairs = __reduce_add_sync(0xffffffff, pairs) * tile_heads<C>(p);
    const int rounds = quotient(pairs + grid() - 1, grid());
    return rounds * grid() - pairs <= pairs / kIdlePart;
  }
  static constexpr int kIdlePart = 25;

  __device__ __forceinline__ int items_of_head(int of_sequence) const {
    const int tiles = tiles_of_head<C>(p, of_sequence);
    return is_paired ? (tiles + 1) / 2 : tiles;
  }
  // Leaves sequences behind that the item lies behind.
  __device__ __forceinline__ void find() const {
#pragma unroll 1
    for (; sequence < p.batch; ++sequence) {
      const int items = items_of_head(sequence) * tile_heads<C>(p);
      if (item < items) return;
      item -= items;
    }
  }

  __device__ __forceinline__ bool has(int /*round*/) const { return sequence < p.batch; }
  __device__ __forceinline__ int next(int round, const TileIndex& /*tile*/) const { return round + 1; }

  // Of the sequence at hand.
  __device__ __forceinline__ TileIndex tile_of(int m, int head) const {
    TileIndex tile{m, sequence * tile_heads<C>(p) + head};
    know_sequence<C>(p, tile, sequence);
    return tile;
  }

  // Goes on. Behind the last item: a tile behind the last.
  __device__ __forceinline__ TileIndex at(int /*round*/) const {
    if (sequence >= p.batch) {
      TileIndex tile{0, p.batch * tile_heads<C>(p)};
      tile.sequence = p.batch;
      tile.first_query = p.seqlen_q;
      return tile;
    }
    const int heads = tile_heads<C>(p), tiles = tiles_of_head<C>(p, sequence);
    const bool is_by_tile = is_uneven(C.facts) && !is_paired;
    const int divisor = is_by_tile ? heads : is_paired ? (tiles + 1) / 2 : tiles;
    const int high = quotient(item, divisor);
    const int low = item - high * divisor;
    if (is_by_tile) {
      const TileIndex tile = tile_of(tiles - 1 - high, low);
      // To the CTA's place in the next round, counted from the other end of it.
      const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C);
      item += 2 * (is_odd ? cta : grid() - 1 - cta) + 1;
      is_odd = !is_odd;
      find();
      return tile;
    }
    const TileIndex tile = tile_of(is_paired && !is_odd ? tiles - 1 - low : low, high);
    // The middle tile of an odd number is a pair by itself.
    if (is_paired && !is_odd && 2 * low != tiles - 1) {
      is_odd = true;
      return tile;
    }
    is_odd = false;
    if constexpr (shares_last_round<C>()) {
      if (full_rounds == 0) {
        sequence = p.batch;
        return part_of(tile);
      }
      item = --full_rounds == 0 ? first_of_last_round(item - cta() + grid()) : item + grid();
    } else {
      item += grid();
    }
    find();
    return tile;
  }

  // This CTA's item of the last round, whose first one has this number: behind all where none is left for it.
  __device__ __forceinline__ int first_of_last_round(int first) const {
    return cta() < shared_items ? first + quotient(cta(), sharing) : kBehindAll;
  }
  static constexpr int kBehindAll = 0x3fffffff;

  // Of a tile of the last round what this CTA takes, perhaps no row.
  __device__ __forceinline__ TileIndex part_of(const TileIndex& tile) const {
    if (sharing == 1) return tile;
    const int rows = quotient(consumer_warpgroups(C) + sharing - 1, sharing) * kRowsPerWarpgroup;
    const int part = cta() - quotient(cta(), sharing) * sharing;
    const int first = tile.m * C.tile_m + part * rows;
    TileIndex own = tile;
    own.m = 0;
    own.first_query += first;
    own.queries = max(min(tile.m * C.tile_m + C.tile_m, tile.queries) - first, 0);
    own.queries = min(own.queries, rows);
    return own;
  }
};

}  // namespace tessera::fmha
