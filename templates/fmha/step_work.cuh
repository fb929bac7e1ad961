// What a CTA does of a step in which long prefills and single queries stand together: ragged queries, dealt keys.
//
// A sequence with many tiles of queries reads its keys once for each of them, so its tiles run at the same time, whole,
// on CTAs that follow each other: then the L2 has the keys. Dealt, each CTA would be elsewhere in them, and every tile
// would come from memory. A sequence with one tile is read once in any order, but its keys may be long: they are dealt.
// So a CTA has some whole tiles, the next ones from where the CTAs before it in the round take theirs, and a range of
// dealt keys that is so much longer or shorter that all CTAs have equally many blocks in the end. Half of the CTAs
// begin with the one kind, half with the other: the one waits for memory, the other for tensor cores. Keys that are
// read once leave the L2 first.
//
// Whole are the sequences of two tiles or more of which no tile is longer than half a CTA's share, the first
// kMostWholeSequences of them; all others are dealt. All that follows from lengths in memory. The CTA finds it before
// its roles begin, in shared memory that the first loads overwrite, and keeps StepWork there.
//
// Ranges of dealt keys differ in length, and some CTAs may have none. A CTA's rank counts those before it that have
// one; its two slots in the workspace are 2 * rank and 2 * rank + 1. cuts[rank] says where its range begins, for who
// merges.
#pragma once

#include "fmha/dealer.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

struct StepWork {
  int whole_tiles;   // of all sequences that are left whole
  int listed;        // those sequences
  int most_blocks;   // of a tile that is left whole
  int listed_end;    // the sequence behind which none is
  BlockPlace place;  // where the CTA's range of dealt keys begins
  int left;          // its blocks
  int rank;          // of the CTA among those with a range
  int sequence[kMostWholeSequences];
  int first_tile[kMostWholeSequences + 1];  // of a sequence, among the whole tiles of all
};
static_assert(sizeof(StepWork) <= kStepWorkBytes);

extern __shared__ __align__(1024) unsigned char step_memory[];

template <Config C>
__device__ __forceinline__ StepWork& work_of() {
  return *reinterpret_cast<StepWork*>(step_memory + smem_layout(C).step_work.offset);
}

// Of one head of a sequence whose keys are dealt; 0 of one that is left whole. One copy of the code counts a tile: the
// ends, which the longest is one of, come first, so that a sequence that is left out is not counted further.
template <Config C>
__device__ __forceinline__ int dealt_units_of_head(const Params& p, const StepWork& work, int sequence) {
  constexpr int kEnds = hides_first_keys(C.facts) ? 2 : 1;  // tiles grow, but for windows
  const int tiles = tiles_of_head<C>(p, sequence);
  int units = 0, longest = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    const int of_tile = units_of<C>(p, sequence, i == 0 ? tiles - 1 : i - 1);
    units += of_tile;
    if (i >= kEnds) continue;
    longest = max(longest, of_tile);
    if (i == kEnds - 1 && tiles > 1 && sequence < work.listed_end && longest <= work.most_blocks) return 0;
  }
  return units;
}

// Whole tiles go to CTAs in rounds, every second one backwards.
__device__ __forceinline__ int whole_tile_of(int round, int cta, int ctas) {
  return round * ctas + (round % 2 == 0 ? cta : ctas - 1 - cta);
}
// Of number `tile`, which belongs to the listed sequence `i`: those of a head side by side, the longest first.
template <Config C>
__device__ __forceinline__ BlockPlace place_of_whole(const Params& p, const StepWork& work, int i, int tile) {
  const int tiles = quotient(work.first_tile[i + 1] - work.first_tile[i], tile_heads<C>(p));
  const int place = tile - work.first_tile[i];
  const int head = quotient(place, tiles);
  return {work.sequence[i], head, tiles - 1 - (place - head * tiles), 0};
}

// Sums over the lanes before this one, and over all.
struct Sums {
  int before;
  int all;
};
__device__ __forceinline__ Sums sums_of(int own) {
  int end = own;
#pragma unroll 1
  for (int i = 1; i < 32; i *= 2) {
    const int before = __shfl_up_sync(0xffffffff, end, i);
    if (static_cast<int>(threadIdx.x) % 32 >= i) end += before;
  }
  return {end - own, __shfl_sync(0xffffffff, end, 31)};
}

// Which sequences are left whole. One warp, twice over all sequences: how many blocks there are, and then which.
template <Config C>
__device__ __forceinline__ void list_whole(const Params& p, StepWork& work, int ctas) {
  constexpr unsigned kAll = 0xffffffff;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int blocks = 0;  // about: tiles between the first and the last count as their mean
  int most = -1;   // known the second time
  int listed = 0, whole_tiles = 0, listed_end = 0;
#pragma unroll 1
  for (int begin = 0;; begin += 32) {
    if (begin >= p.batch || listed >= kMostWholeSequences) {
      if (most >= 0) break;
      most = quotient(__reduce_add_sync(kAll, blocks) * tile_heads<C>(p), 2 * ctas);
      begin = 0;
    }
    const int sequence = begin + lane;
    const int tiles = sequence < p.batch ? tiles_of_head<C>(p, sequence) : 0;
    int first = 0, last = 0;
    if (tiles > 0) {
      first = units_of<C>(p, sequence, 0);
      last = units_of<C>(p, sequence, tiles - 1);
    }
    if (most < 0) {
      blocks += static_cast<int>((static_cast<unsigned>(tiles) * static_cast<unsigned>(first + last) + 1) / 2);
      continue;
    }
    bool is_whole = tiles > 1 && (hides_first_keys(C.facts) ? max(first, last) : last) <= most;
    const unsigned before = __ballot_sync(kAll, is_whole) & ((1u << lane) - 1);
    const int place = listed + __popc(before);
    is_whole = is_whole && place < kMostWholeSequences;
    const unsigned whole = __ballot_sync(kAll, is_whole);
    const Sums of_lanes = sums_of(is_whole ? tiles * tile_heads<C>(p) : 0);
    if (is_whole) {
      work.sequence[place] = sequence;
      work.first_tile[place] = whole_tiles + of_lanes.before;
    }
    whole_tiles += of_lanes.all;
    listed += __popc(whole);
    if (whole != 0) listed_end = begin + 32 - __clz(static_cast<int>(whole));
  }
  if (lane != 0) return;
  work.whole_tiles = whole_tiles;
  work.listed = listed;
  work.most_blocks = most;
  work.listed_end = listed_end;
  work.first_tile[listed] = whole_tiles;
}

// Blocks of a CTA's whole tiles.
template <Config C>
__device__ __forceinline__ int whole_blocks(const Params& p, const StepWork& work, int cta, int ctas) {
  int blocks = 0, i = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    const int tile = whole_tile_of(round, cta, ctas);
    if (tile >= work.whole_tiles) return blocks;
#pragma unroll 1
    while (tile >= work.first_tile[i + 1]) ++i;
    const BlockPlace place = place_of_whole<C>(p, work, i, tile);
    blocks += blocks_of<C>(p, place.sequence, place.m);
  }
}

// How many blocks of dealt keys each CTA takes, so that with those of its whole tiles all come to one level, but for
// CTAs whose whole tiles are more. The first `rest` of those that take some have one block more. One warp.
struct Level {
  int blocks;
  int rest;
};
__device__ __forceinline__ Level level_of(const int* loads, int ctas, int dealt) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Level level{0, 0};
  int below = 0;
#pragma unroll 1
  for (int left = -1;; left = below) {
    int count = 0, sum = 0;
#pragma unroll 1
    for (int cta = lane; cta < ctas; cta += 32) {
      const int load = loads[cta];
      if (left >= 0 && load > level.blocks) continue;
      ++count;
      sum += load;
    }
    below = __reduce_add_sync(0xffffffff, count);
    sum = __reduce_add_sync(0xffffffff, sum);
    if (left >= 0 && below >= left) return level;  // fewer each time, whatever the lengths in memory are
    level.blocks = quotient(dealt + sum, below);
    level.rest = dealt + sum - level.blocks * below;
  }
}

// Of the row of all dealt blocks: the CTA's part of it.
struct Share {
  int begin;
  int blocks;
  int rank;
};
__device__ __forceinline__ Share share_of(const int* loads, int cta, int ctas, int dealt) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Level level = level_of(loads, ctas, dealt);
  int at_level = 0;  // or below: of those before the 32 CTAs at hand
  int own = 0, begin = 0, ranges = 0, ranges_before = 0;
#pragma unroll 1
  for (int first = 0; first < ctas; first += 32) {
    const int i = first + lane;
    const int left = i < ctas ? level.blocks - loads[i] : -1;
    const unsigned takers = __ballot_sync(0xffffffff, left >= 0);
    const int number = at_level + __popc(takers & ((1u << lane) - 1));
    const int share = left >= 0 ? left + (number < level.rest ? 1 : 0) : 0;
    at_level += __popc(takers);
    ranges += share > 0 ? 1 : 0;
    if (i == cta) own = share;
    if (i < cta) {
      begin += share;
      ranges_before += share > 0 ? 1 : 0;
    }
  }
  const auto of_all = [](int x) { return __reduce_add_sync(0xffffffff, x); };
  own = of_all(own);
  const int with_range = of_all(ranges_before);
  return {of_all(begin), own, own > 0 ? with_range : of_all(ranges) + cta - with_range};
}

// The CTA's range of dealt keys. One warp, of which each lane knows some sequences that follow each other. One copy of
// the code counts a sequence: first each lane all of its own, then all lanes those of the one where the range begins.
template <Config C>
__device__ __forceinline__ void take_range(const Params& p, StepWork& work, const int* loads, int cta, int ctas) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int sequences_of_lane = (p.batch + 31) / 32;
  BlockPlace place{lane * sequences_of_lane, 0, 0, 0x7fffffff};
  int end_sequence = min(place.sequence + sequences_of_lane, p.batch);
  int of_head = 0, of_tile = 0;
  Share share{};
#pragma unroll 1
  for (bool is_cut = false;; is_cut = true) {
    int of_lane = 0;
#pragma unroll 1
    for (; place.sequence < end_sequence; ++place.sequence) {
      of_head = dealt_units_of_head<C>(p, work, place.sequence);
      const int of_sequence = of_head * tile_heads<C>(p);
      if (place.block < of_sequence) break;
      place.block -= of_sequence;
      of_lane += of_sequence;
    }
    if (is_cut) break;
    const Sums sums = sums_of(of_lane);
    share = share_of(loads, cta, ctas, sums.all);
    place = {};
    if (share.blocks == 0) {
      share.begin = sums.all;
      break;
    }
    const int owner = __popc(__ballot_sync(0xffffffff, sums.before + of_lane <= share.begin));
    place.sequence = owner * sequences_of_lane;
    place.block = share.begin - __shfl_sync(0xffffffff, sums.before, owner);
    end_sequence = p.batch;
  }
  if (share.blocks > 0) {
    place.head = quotient(place.block, of_head);
    place.block -= place.head * of_head;
#pragma unroll 1
    for (; place.block >= (of_tile = units_of<C>(p, place.sequence, place.m)); ++place.m) place.block -= of_tile;
  }
  if (lane != 0) return;
  work.place = place;
  work.left = share.blocks;
  work.rank = share.rank;
  if (cta_of_tile<C>() != 0) return;
  int* const to = p.cuts + kCutWords * share.rank;
  const auto word = [](int x) { return static_cast<unsigned>(x); };
  ptx::st_global_v4(to, {word(share.begin), word(place.sequence), word(place.head), word(place.m)});
  ptx::st_global_v4(to + 4, {word(place.block), word(of_tile), 0, 0});
}

__device__ __forceinline__ Cut cut_of(const Params& p, int rank) {
  const int* const from = p.cuts + kCutWords * rank;
  const ptx::Vector4 low = ptx::ld_global_v4_written(from), high = ptx::ld_global_v4_written(from + 4);
  const auto number = [](unsigned x) { return static_cast<int>(x); };
  return {number(low.x), {number(low.y), number(low.z), number(low.w), number(high.x)}, number(high.y)};
}

// By all threads of the CTA, before its roles begin and anything is loaded. A barrier of all must follow.
template <Config C>
__device__ __forceinline__ void share_out(const Params& p) {
  static_assert(4 * kMostCutCtas <= smem_layout(C).step_work.offset);
  StepWork& work = work_of<C>();
  int* const loads = reinterpret_cast<int*>(step_memory);
  const int ctas = static_cast<int>(gridDim.x) / ctas_per_tile(C);
  if (threadIdx.x < 32) list_whole<C>(p, work, ctas);
  __syncthreads();
#pragma unroll 1
  for (int cta = static_cast<int>(threadIdx.x); cta < ctas; cta += static_cast<int>(blockDim.x))
    loads[cta] = whole_blocks<C>(p, work, cta, ctas);
  __syncthreads();
  if (threadIdx.x < 32) take_range<C>(p, work, loads, static_cast<int>(blockIdx.x) / ctas_per_tile(C), ctas);
  ptx::fence_proxy_async_shared();  // loads overwrite what was found here
}

// The CTA's whole tiles and its range. One copy of the code finds a tile of either kind, and looks whether a sequence
// is dealt.
template <Config C>
requires(has_whole_tiles(C)) struct Schedule<C> {
  const Params& p;
  mutable BlockPlace place;  // where the range goes on; a sequence that begins there may be one that is not dealt
  mutable int left;          // blocks from there on
  mutable int slot;          // that a part takes there
  mutable int whole_round = 0;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params), place(work_of<C>().place), left(work_of<C>().left), slot(2 * work_of<C>().rank) {}

  static __device__ __forceinline__ int cta() { return static_cast<int>(blockIdx.x) / ctas_per_tile(C); }
  __device__ __forceinline__ int whole_number() const {
    return whole_tile_of(whole_round, cta(), static_cast<int>(gridDim.x) / ctas_per_tile(C));
  }

  __device__ __forceinline__ bool has(int /*round*/) const {
    return left > 0 || whole_number() < work_of<C>().whole_tiles;
  }
  __device__ __forceinline__ int next(int round, const TileIndex& /*tile*/) const { return round + 1; }

  // Goes on. Behind the last: a tile behind the last.
  __device__ __forceinline__ TileIndex at(int /*round*/) const {
    const StepWork& work = work_of<C>();
    const int number = whole_number();
    const bool is_whole = number < work.whole_tiles && (cta() % 2 == 0 || left <= 0);
    if (!is_whole && left <= 0) return tile_behind<C>(p);
    BlockPlace at = place;
    if (is_whole) {
      ++whole_round;
      int i = 0;
#pragma unroll 1
      for (int step = kMostWholeSequences / 2; step > 0; step /= 2)
        if (i + step < work.listed && work.first_tile[i + step] <= number) i += step;
      at = place_of_whole<C>(p, work, i, number);
    }
    constexpr int kEnds = hides_first_keys(C.facts) ? 2 : 1;  // tiles grow, but for windows
    const int heads = tile_heads<C>(p);
    bool is_found = is_whole || at.head + at.m + at.block > 0;
    int tiles, blocks, longest = 0, ends = 0;
    TileIndex tile{};
#pragma unroll 1
    for (;;) {
      tile.head = at.sequence * heads + at.head;
      know_sequence<C>(p, tile, at.sequence);
      const Lengths lengths = lengths_of<C>(p, tile);
      tiles = (rows_of<C>(p, lengths) + C.tile_m - 1) / C.tile_m;
      is_found |= tiles == 1 || (tiles > 0 && at.sequence >= work.listed_end) || longest > work.most_blocks;
      tile.m = is_found ? at.m : ends == 0 ? tiles - 1 : 0;
      const Blocks all = KeyBlocks<C>(p, lengths).of_rows(tile.m * C.tile_m, (tile.m + 1) * C.tile_m);
      blocks = all.end - all.begin;
      if (is_found) break;
      longest = max(longest, blocks);
      if (tiles > 0 && (longest > work.most_blocks || ++ends < kEnds)) continue;
      ++at.sequence;
      longest = ends = 0;
    }
    tile.begin = at.block;
    tile.end = is_whole ? blocks : min(blocks, at.block + left);
    tile.split = kSharesKeys;
    if (is_whole) return tile;
    tile.split = at.block == 0 && tile.end == blocks ? -1 : slot;
    left -= tile.end - at.block;
    slot |= 1;
    at.block = 0;
    if (++at.m == tiles) {
      at.m = 0;
      if (++at.head == heads) {
        at.head = 0;
        ++at.sequence;
      }
    }
    place = at;
    return tile;
  }
};

}  // namespace tessera::fmha
