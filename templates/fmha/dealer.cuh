// Dealt keys: which blocks a CTA takes.
//
// The key blocks of all tiles stand in one row: tiles in the order of sequences, heads and places in the head, each
// with as many blocks as its rows see, which only the lengths in memory tell. The row is cut into as many ranges as
// there are CTAs, equal but for one block. So the grid is the same whatever the lengths are, and CTAs end at about the
// same time. Of kernels that ask ahead the row is all of one head behind all of another, and each head's is cut at the
// same places, into ranges that are up to an eighth longer than a share, but for the last ones: cut_of_heads().
//
// A tile that lies in one range is whole: its CTA normalises and stores it. One that is cut has a part in each range
// that it reaches into. A CTA has at most two parts, one that begins its range and one that ends it, hence two slots
// in the workspace: 2 * CTA and 2 * CTA + 1. merge_dealt.cuh finds them by the same arithmetic.
//
// Parts with a size of their own (split_size) begin at multiples of it among their tile's keys, so that they depend on
// the sequence alone. The row is then one of parts, each of which its CTA works on as a whole, and a tile has slots for
// as many as the launch's lengths allow.
#pragma once

#include "fmha/key_blocks.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
__device__ __forceinline__ int tiles_of_head(const Params& p, int sequence) {
  return (queries_of<C>(p, sequence) * C.pack_gqa + C.tile_m - 1) / C.tile_m;
}

template <Config C>
__device__ __forceinline__ int blocks_of(const Params& p, int sequence, int m) {
  TileIndex tile{0, sequence * tile_heads<C>(p)};
  know_sequence<C>(p, tile, sequence);
  const KeyBlocks<C> keys(p, lengths_of<C>(p, tile));
  const Blocks all = keys.of_rows(m * C.tile_m, (m + 1) * C.tile_m);
  return all.end - all.begin;
}

// What ranges are made of: blocks, or parts with a size of their own.
template <Config C>
__device__ __forceinline__ int units_of(const Params& p, int sequence, int m) {
  const int blocks = blocks_of<C>(p, sequence, m);
  if constexpr (!has_split_size(C.facts)) return blocks;
  constexpr int kOfPart = blocks_of_part(C.facts, C.tile_n);
  return (blocks + kOfPart - 1) / kOfPart;
}

// Of all tiles of one head.
template <Config C>
__device__ __forceinline__ int units_of_head(const Params& p, int sequence) {
  const int tiles = tiles_of_head<C>(p, sequence);
  int units = 0;
#pragma unroll 1
  for (int m = 0; m < tiles; ++m) units += units_of<C>(p, sequence, m);
  return units;
}

// Parts with a size of their own: where those of a ragged sequence's tiles begin, the tiles of one head counted. A
// sequence has one tile more, at most, than lie between its ends.
template <Config C>
__device__ __forceinline__ int first_tile_of_parts(const Params& p, int sequence) {
  return quotient(first_query<C>(p, sequence) * C.pack_gqa, C.tile_m) + sequence;
}
// The number of a tile, of which each has max_parts slots.
template <Config C>
__device__ __forceinline__ int tile_of_parts(const Params& p, int sequence, int head, int m) {
  if constexpr (is_ragged(C.facts)) return (first_tile_of_parts<C>(p, sequence) + m) * tile_heads<C>(p) + head;
  return (sequence * tile_heads<C>(p) + head) * tiles_of_head<C>(p, sequence) + m;
}

// A block, or part, in the row of all: its tile, and its number among the tile's.
struct BlockPlace {
  int sequence = 0;
  int head = 0;
  int m = 0;
  int block = 0;
};

// Where a range begins.
struct Cut {
  int begin;         // in the row of all blocks
  BlockPlace place;  // of that block
  int blocks;        // of the tile there; 0: there is none, the row has ended
};

// How long a CTA's range is where all are of one length: up to an eighth more than its share, so that equal sequences
// are cut at the same blocks, and few of their tiles.
__device__ __forceinline__ int length_of_range(int total, int ctas) {
  const int least = quotient(total + ctas - 1, ctas);
  const int step = 1 << max(28 - __clz(least - 1), 0);
  return (least + step - 1) & -step;
}

// Kernels that ask ahead: where a CTA's range begins in the row, which is one head's blocks behind another's. Each head
// has as many ranges as every other, cut at the same blocks: CTAs that run side by side read the keys of the same
// tokens, each those of its head, and a page's lines are wanted at about the same time whatever the lengths are. Where
// the division of CTAs among heads alone would leave more than an eighth of them without a range, the row is cut as
// one.
__device__ __forceinline__ int cut_of_heads(int blocks_of_head, int heads, int cta, int ctas) {
  const int of_all = blocks_of_head * heads, each = quotient(ctas, heads);
  if ((ctas - each * heads) * 8 > ctas) return min(length_of_range(of_all, ctas) * cta, of_all);
  const int head = quotient(cta, each);
  if (head >= heads) return of_all;
  return blocks_of_head * head + min(length_of_range(blocks_of_head, each) * (cta - head * each), blocks_of_head);
}

// A warp's view of the row; all its lanes call together. Each lane knows some sequences that follow each other.
template <Config C>
struct BlockRow {
  const Params& p;
  const int sequences_of_lane;
  int of_lane = 0;  // units of this lane's sequences; where the row is head by head, of one head
  int end = 0;      // and of those before
  int total = 0;
  int turn = 0;  // units of one head, where the row is head by head

  __device__ __forceinline__ explicit BlockRow(const Params& params)
      : p(params), sequences_of_lane((params.batch + 31) / 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int i = 0; i < sequences_of_lane; ++i) {
      const int sequence = lane * sequences_of_lane + i;
      if (sequence < p.batch) of_lane += units_of_head<C>(p, sequence);
    }
    of_lane *= asks_ahead(C) ? 1 : tile_heads<C>(p);
    end = of_lane;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int before = __shfl_up_sync(0xffffffff, end, i);
      if (lane >= i) end += before;
    }
    total = __shfl_sync(0xffffffff, end, 31);
    if constexpr (asks_ahead(C)) {
      turn = total;
      total *= tile_heads<C>(p);
    }
  }

  // Where the range of a CTA begins.
  __device__ __forceinline__ int cut(int cta, int ctas) const {
    if constexpr (asks_ahead(C)) return cut_of_heads(turn, tile_heads<C>(p), cta, ctas);
    const int each = quotient(total, ctas);
    return each * cta + min(cta, total - each * ctas);
  }

  // Precondition: 0 <= index < total.
  __device__ __forceinline__ BlockPlace at(int index) const {
    BlockPlace place;
    if constexpr (asks_ahead(C)) {
      place.head = quotient(index, turn);
      index -= place.head * turn;
    }
    const int lane = __popc(__ballot_sync(0xffffffff, end <= index));
    place.sequence = lane * sequences_of_lane;
    place.block = index - __shfl_sync(0xffffffff, end - of_lane, lane);
    int of_head;
#pragma unroll 1
    for (;; ++place.sequence) {  // one copy of the code that counts: less to compile
      of_head = units_of_head<C>(p, place.sequence);
      const int of_sequence = of_head * (asks_ahead(C) ? 1 : tile_heads<C>(p));
      if (place.block < of_sequence) break;
      place.block -= of_sequence;
    }
    if constexpr (!asks_ahead(C)) {
      place.head = quotient(place.block, of_head);
      place.block -= place.head * of_head;
    }
#pragma unroll 1
    for (int of_tile; place.block >= (of_tile = units_of<C>(p, place.sequence, place.m)); ++place.m)
      place.block -= of_tile;
    return place;
  }
};

// Walks through a range, one tile or part of one at a time: each thread on its own, in the order of rounds.
template <Config C>
struct DealtRange {
  const Params& p;
  BlockPlace place;  // where the next tile begins
  int left = 0;      // blocks from there on
  int slot = 0;      // that a part takes there

  // Precondition: left > 0.
  __device__ __forceinline__ TileIndex take() {
    if constexpr (has_split_size(C.facts)) return take_part();
    const int blocks = blocks_of<C>(p, place.sequence, place.m);
    const int end = min(blocks, place.block + left);
    const bool is_whole = place.block == 0 && end == blocks;
    TileIndex tile{place.m, place.sequence * tile_heads<C>(p) + place.head, is_whole ? -1 : slot, place.block, end};
    know_sequence<C>(p, tile, place.sequence);
    left -= end - place.block;
    slot |= 1;
    go_on();
    return tile;
  }

 private:
  // A part with a size of its own.
  __device__ __forceinline__ TileIndex take_part() {
    constexpr int kOfPart = blocks_of_part(C.facts, C.tile_n);
    const int blocks = blocks_of<C>(p, place.sequence, place.m);
    const int begin = place.block * kOfPart;
    const int own_slot = tile_of_parts<C>(p, place.sequence, place.head, place.m) * p.max_parts + place.block;
    TileIndex tile{place.m, place.sequence * tile_heads<C>(p) + place.head, blocks <= kOfPart ? -1 : own_slot, begin,
                   min(begin + kOfPart, blocks)};
    know_sequence<C>(p, tile, place.sequence);
    --left;
    if (tile.end < blocks) {
      ++place.block;
    } else {
      go_on();
    }
    return tile;
  }

  // To the next tile.
  __device__ __forceinline__ void go_on() {
    place.block = 0;
    if (++place.m == tiles_of_head<C>(p, place.sequence)) {
      place.m = 0;
      if constexpr (asks_ahead(C)) {
        if (++place.sequence == p.batch) {
          place.sequence = 0;
          ++place.head;
        }
      } else if (++place.head == tile_heads<C>(p)) {
        place.head = 0;
        ++place.sequence;
        if constexpr (is_ragged(C.facts))
          while (left > 0 && tiles_of_head<C>(p, place.sequence) == 0) ++place.sequence;
      }
    }
  }
};

// A tile that is not there, behind the last.
template <Config C>
__device__ __forceinline__ TileIndex tile_behind(const Params& p) {
  TileIndex tile{0, p.batch * tile_heads<C>(p), -1, 0, 1};
  if constexpr (knows_sequence(C)) {
    tile.sequence = p.batch;
    tile.first_query = p.seqlen_q;
  }
  return tile;
}

// The CTA's range.
template <Config C>
requires(is_dealt(C) && !has_whole_tiles(C)) struct Schedule<C> {
  mutable DealtRange<C> range;

  __device__ __forceinline__ explicit Schedule(const Params& params) : range{params, {}} {
    const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C);
    const int ctas = static_cast<int>(gridDim.x) / ctas_per_tile(C);
    const BlockRow<C> row(params);
    const int begin = row.cut(cta, ctas);
    range.left = row.cut(cta + 1, ctas) - begin;
    range.slot = 2 * cta;
    if (range.left > 0) range.place = row.at(begin);
  }

  __device__ __forceinline__ bool has(int /*round*/) const { return range.left > 0; }
  __device__ __forceinline__ int next(int round, const TileIndex& /*tile*/) const { return round + 1; }

  // Goes on. Behind the range: a tile behind the last.
  __device__ __forceinline__ TileIndex at(int /*round*/) const {
    return range.left <= 0 ? tile_behind<C>(range.p) : range.take();
  }
};

}  // namespace tessera::fmha
