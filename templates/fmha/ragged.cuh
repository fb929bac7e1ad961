// Ragged sequences: which tiles a CTA takes.
//
// As schedule.cuh deals, but a sequence's tiles follow from its own length: each round a CTA goes on by as many items
// as there are CTAs, through the items of one sequence after the other. An item is a tile; where work grows with a
// tile's place it is a pair of tiles of one head, the i-th and the i-th from the end, so that all pairs of a sequence
// are equally long. Each thread walks on its own, in the order of rounds.
#pragma once

#include "fmha/dealer.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
requires(is_ragged(C.facts) && !is_dealt(C)) struct Schedule<C> {
  const Params& p;
  mutable int sequence = 0;        // of the next round
  mutable int item;                // among those of the sequence
  mutable bool is_second = false;  // the other tile of a pair comes next

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params), item(static_cast<int>(blockIdx.x) / ctas_per_tile(C)) {
    find();
  }

  __device__ __forceinline__ int items_of_head(int of_sequence) const {
    const int tiles = tiles_of_head<C>(p, of_sequence);
    return is_uneven(C.facts) ? (tiles + 1) / 2 : tiles;
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

  // Goes on. Behind the last item: a tile behind the last.
  __device__ __forceinline__ TileIndex at(int /*round*/) const {
    if (sequence >= p.batch) return {0, p.batch * tile_heads<C>(p)};
    const int items = items_of_head(sequence);
    const int head = quotient(item, items);
    const int low = item - head * items;
    const int tiles = tiles_of_head<C>(p, sequence);
    const TileIndex tile{is_uneven(C.facts) && !is_second ? tiles - 1 - low : low, sequence * tile_heads<C>(p) + head};
    // The middle tile of an odd number is a pair by itself.
    if (is_uneven(C.facts) && !is_second && 2 * low != tiles - 1) {
      is_second = true;
      return tile;
    }
    is_second = false;
    item += static_cast<int>(gridDim.x) / ctas_per_tile(C);
    find();
    return tile;
  }
};

}  // namespace tessera::fmha
