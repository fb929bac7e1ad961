// What a CTA does of a step in which long prefills and single queries stand together: ragged queries, dealt keys.
//
// A sequence with many tiles of queries reads its keys once for each of them, so its tiles run at the same time, whole,
// on CTAs that follow each other: then the L2 has the keys. Dealt, each CTA would be elsewhere in them, and every tile
// would come from memory. A sequence with one tile is read once in any order, but its keys may be long: they are dealt.
// So a CTA has some whole tiles, the next ones from where the CTAs before it in the round take theirs, and a range of
// dealt keys that is so much longer or shorter that all CTAs have equally many blocks in the end. Half of the CTAs
// begin with the one kind, half with the other: the one waits for memory, the other for tensor cores. Keys that are
// read once leave the L2 first. Their row is one head's blocks behind another's, of CTAs that follow each other each
// has another head at the same place: CtaPlaces.
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
#include "ptx/address.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "ptx/shared_words.cuh"
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

// Whole tiles go to CTAs in rounds, every second one backwards: the same turns a place in a round into a CTA.
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

// Whose range of dealt keys stands where in the row, which is one head's blocks behind another's: CTAs that follow each
// other have the same place in the keys of one head after the other, so that a token's lines are wanted at about the
// same time. What the division of CTAs among heads leaves goes to the ends of some heads' blocks.
struct CtaPlaces {
  int heads;
  int each;  // CTAs of a head
  int rest;

  __device__ __forceinline__ CtaPlaces(int ctas, int of_heads)
      : heads(of_heads), each(quotient(ctas, of_heads)), rest(ctas - each * of_heads) {}

  __device__ __forceinline__ int in_row(int cta) const {
    const int over = cta - each * heads;
    if (over >= 0) return each * (quotient(over * heads, rest) + 1) + over;
    const int in_head = quotient(cta, heads), head = cta - in_head * heads;
    return each * head + quotient(head * rest + heads - 1, heads) + in_head;
  }
  // Half of the CTAs, those of one place alike.
  __device__ __forceinline__ bool begins_with_whole(int cta) const {
    return (each < 2 ? cta : quotient(cta, heads)) % 2 == 0;
  }
};

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

// Where the CTA counts, in shared memory that the first loads overwrite.
inline constexpr int kCounted = 1024;
struct StepCounts {
  int loads[kMostCutCtas];  // blocks of each CTA's whole tiles, by CtaPlaces
  union {
    struct {
      int tiles[kCounted / 2];    // of a head of a sequence
      int longest[kCounted / 2];  // blocks of one of them
    };
    int units[kCounted];  // dealt, of one head of a sequence, or of as many that follow each other as all need
  };
  int of_warp[32];
};

// Which sequences are left whole. All threads, so that lengths come from memory side by side; twice over all sequences:
// how many blocks there are, and then which. Those that have room are counted once.
template <Config C>
__device__ __forceinline__ void list_whole(const Params& p, StepWork& work, StepCounts& counts, int ctas) {
  constexpr unsigned kAll = 0xffffffff;
  constexpr int kRoom = kCounted / 2;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, threads = static_cast<int>(blockDim.x);
  int blocks = 0;  // of the thread's sequences, about: tiles between the first and the last count as their mean
  int most = -1;   // known the second time
  int listed = 0, whole_tiles = 0, listed_end = 0;
#pragma unroll 1
  for (int begin = 0;; begin += kRoom) {
    if (begin >= p.batch) {
      if (most >= 0) break;
      blocks = __reduce_add_sync(kAll, blocks);
      if (lane == 0) counts.of_warp[thread / 32] = blocks;
      __syncthreads();
      blocks = __reduce_add_sync(kAll, lane < threads / 32 ? counts.of_warp[lane] : 0);
      most = quotient(blocks * tile_heads<C>(p), 2 * ctas);
      begin = 0;
    }
    const int end = min(begin + kRoom, p.batch);
    if (most < 0 || p.batch > kRoom) {
#pragma unroll 1
      for (int sequence = begin + thread; sequence < end; sequence += threads) {
        const int tiles = tiles_of_head<C>(p, sequence);
        const int first = units_of<C>(p, sequence, 0), last = units_of<C>(p, sequence, max(tiles - 1, 0));
        counts.tiles[sequence - begin] = tiles;
        counts.longest[sequence - begin] = hides_first_keys(C.facts) ? max(first, last) : last;
        blocks += static_cast<int>((static_cast<unsigned>(tiles) * static_cast<unsigned>(first + last) + 1) / 2);
      }
      if (most < 0) continue;
      __syncthreads();
    }
#pragma unroll 1
    for (int at = begin; at < end && thread < 32; at += 32) {
      const int tiles = at + lane < end ? counts.tiles[at - begin + lane] : 0;
      bool is_whole = tiles > 1 && counts.longest[at - begin + lane] <= most;
      const unsigned before = __ballot_sync(kAll, is_whole) & ((1u << lane) - 1);
      const int place = listed + __popc(before);
      is_whole = is_whole && place < kMostWholeSequences;
      const unsigned whole = __ballot_sync(kAll, is_whole);
      const Sums of_lanes = sums_of(is_whole ? tiles * tile_heads<C>(p) : 0);
      if (is_whole) {
        work.sequence[place] = at + lane;
        work.first_tile[place] = whole_tiles + of_lanes.before;
      }
      whole_tiles += of_lanes.all;
      listed += __popc(whole);
      if (whole != 0) listed_end = at + 32 - __clz(static_cast<int>(whole));
    }
    if (p.batch > kRoom) __syncthreads();
  }
  if (thread != 0) return;
  work.whole_tiles = whole_tiles;
  work.listed = listed;
  work.most_blocks = most;
  work.listed_end = listed_end;
  work.first_tile[listed] = whole_tiles;
}

// Adds the blocks of whole tiles to those of their CTAs, which are 0 before and stand in the order of their ranges. All
// threads, each some tiles.
template <Config C>
__device__ __forceinline__ void count_whole(const Params& p, const StepWork& work, int* loads, int ctas) {
  const CtaPlaces places(ctas, tile_heads<C>(p));
  int i = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(threadIdx.x); tile < work.whole_tiles; tile += static_cast<int>(blockDim.x)) {
#pragma unroll 1
    while (tile >= work.first_tile[i + 1]) ++i;
    const BlockPlace place = place_of_whole<C>(p, work, i, tile);
    const int round = quotient(tile, ctas);
    int* const load = loads + places.in_row(whole_tile_of(round, tile - round * ctas, ctas) - round * ctas);
    ptx::red_shared_add(ptx::shared_address(load), static_cast<unsigned>(blocks_of<C>(p, place.sequence, place.m)));
  }
}

// How many blocks of dealt keys each CTA takes, so that with those of its whole tiles all come to one level, but for
// CTAs whose whole tiles are more. The first `rest` of those that take some have one block more. One warp. From the
// level that all CTAs would have.
struct Level {
  int blocks;
  int rest;
};
__device__ __forceinline__ Level level_of(const int* loads, int ctas, int dealt, Level level) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int below = 0;
#pragma unroll 1
  for (int left = ctas;; left = below) {
    int count = 0, sum = 0;
#pragma unroll 1
    for (int cta = lane; cta < ctas; cta += 32) {
      const int load = loads[cta];
      if (load > level.blocks) continue;
      ++count;
      sum += load;
    }
    below = __reduce_add_sync(0xffffffff, count);
    sum = __reduce_add_sync(0xffffffff, sum);
    if (below >= left) return level;  // fewer each time, whatever the lengths in memory are
    level.blocks = quotient(dealt + sum, below);
    level.rest = dealt + sum - level.blocks * below;
  }
}

// Of the row of all dealt blocks: a CTA's part of it, by the CTA's place.
struct Share {
  int begin;
  int blocks;
  int rank;
};
__device__ __forceinline__ Share share_of(const int* loads, int at, int ctas, int dealt) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto of_all = [](int x) { return __reduce_add_sync(0xffffffff, x); };
  int most = 0, sum = 0, sum_before = 0;
#pragma unroll 1
  for (int i = lane; i < ctas; i += 32) {
    const int load = loads[i];
    most = max(most, load);
    sum += load;
    sum_before += i < at ? load : 0;
  }
  most = __reduce_max_sync(0xffffffff, most);
  sum = dealt + of_all(sum);
  Level level{quotient(sum, ctas), 0};
  level.rest = sum - level.blocks * ctas;
  if (most < level.blocks)  // all take some
    return {level.blocks * at + min(at, level.rest) - of_all(sum_before),
            level.blocks - loads[at] + (at < level.rest ? 1 : 0), at};
  level = level_of(loads, ctas, dealt, level);
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
    if (i == at) own = share;
    if (i < at) {
      begin += share;
      ranges_before += share > 0 ? 1 : 0;
    }
  }
  own = of_all(own);
  const int with_range = of_all(ranges_before);
  return {of_all(begin), own, own > 0 ? with_range : of_all(ranges) + at - with_range};
}

// The CTA's range of dealt keys, as far as it is known. One warp.
struct StepRange {
  Share share{0, 0, -1};
  BlockPlace place;

  // By counts of `each` sequences, `counted` of them from `first` on, among which the place lies. The first time each
  // lane sums some that follow each other.
  __device__ __forceinline__ void narrow(const StepCounts& counts, int first, int counted, int each, int heads, int at,
                                         int ctas) {
    int i = 0;
    if (share.rank < 0) {
      const int lane = static_cast<int>(threadIdx.x) % 32, of_lane = (counted + 31) / 32;
      int sum = 0;
#pragma unroll 1
      for (int j = lane * of_lane; j < min((lane + 1) * of_lane, counted); ++j) sum += counts.units[j];
      const Sums sums = sums_of(sum);
      share = share_of(counts.loads, at, ctas, sums.all * heads);
      if (share.blocks == 0) {
        share.begin = sums.all * heads;
        return;
      }
      place.head = quotient(share.begin, sums.all);
      place.block = share.begin - place.head * sums.all;
      const int owner = __popc(__ballot_sync(0xffffffff, sums.before + sum <= place.block));
      place.block -= __shfl_sync(0xffffffff, sums.before, owner);
      i = owner * of_lane;
    }
    if (share.blocks == 0) return;
#pragma unroll 1
    for (; i < counted && place.block >= counts.units[i]; ++i) place.block -= counts.units[i];
    place.sequence = first + i * each;
  }

  template <Config C>
  __device__ __forceinline__ void take(const Params& p, StepWork& work) {
    int of_tile = 0;
    if (share.blocks > 0) {
#pragma unroll 1
      for (; place.block >= (of_tile = units_of<C>(p, place.sequence, place.m)); ++place.m) place.block -= of_tile;
    }
    if (threadIdx.x % 32 != 0) return;
    work.place = place;
    work.left = share.blocks;
    work.rank = share.rank;
    if (cta_of_tile<C>() != 0) return;
    int* const to = p.cuts + kCutWords * share.rank;
    const auto word = [](int x) { return static_cast<unsigned>(x); };
    ptx::st_global_v4(to, {word(share.begin), word(place.sequence), word(place.head), word(place.m)});
    ptx::st_global_v4(to + 4, {word(place.block), word(of_tile), 0, 0});
  }
};

__device__ __forceinline__ Cut cut_of(const Params& p, int rank) {
  const int* const from = p.cuts + kCutWords * rank;
  const ptx::Vector4 low = ptx::ld_global_v4_written(from), high = ptx::ld_global_v4_written(from + 4);
  const auto number = [](unsigned x) { return static_cast<int>(x); };
  return {number(low.x), {number(low.y), number(low.z), number(low.w), number(high.x)}, number(high.y)};
}

// By all threads of the CTA, before its roles begin and anything is loaded. A barrier of all must follow.
template <Config C>
__device__ __forceinline__ void share_out(const Params& p) {
  static_assert(sizeof(StepCounts) <= smem_layout(C).step_work.offset);
  StepWork& work = work_of<C>();
  StepCounts& counts = *reinterpret_cast<StepCounts*>(step_memory);
  const int cta = static_cast<int>(blockIdx.x) / ctas_per_tile(C),
            ctas = static_cast<int>(gridDim.x) / ctas_per_tile(C);
  const int at = CtaPlaces(ctas, tile_heads<C>(p)).in_row(cta);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int i = thread; i < ctas; i += threads) counts.loads[i] = 0;
  list_whole<C>(p, work, counts, ctas);
  __syncthreads();
  count_whole<C>(p, work, counts.loads, ctas);
  // All sequences, as many to a count as there must be; then, where those are several, the ones of one count.
  StepRange range;
  int first = 0, end = p.batch, each = max((p.batch + kCounted - 1) / kCounted, 1);
#pragma unroll 1
  for (;;) {
    const int counted = quotient(end - first + each - 1, each);
    // The last threads first: others may have counted one more tile.
#pragma unroll 1
    for (int i = threads - 1 - thread; i < counted; i += threads) {
      int units = 0;
#pragma unroll 1
      for (int j = first + i * each; j < min(first + (i + 1) * each, end); ++j)
        units += dealt_units_of_head<C>(p, work, j);
      counts.units[i] = units;
    }
    __syncthreads();
    if (thread < 32) range.narrow(counts, first, counted, each, tile_heads<C>(p), at, ctas);
    if (each == 1) break;
    if (thread == 0) work.place = range.place;
    __syncthreads();
    first = work.place.sequence;
    end = min(first + each, end);
    each = 1;
  }
  if (thread < 32) range.take<C>(p, work);
  ptx::fence_proxy_async_shared();  // loads overwrite what was found here
}

// The CTA's whole tiles and its range. One copy of the code finds a tile of either kind, and looks whether a sequence
// is dealt.
template <Config C>
requires(has_whole_tiles(C)) struct Schedule<C> {
  const Params& p;
  const bool begins_with_whole;
  mutable BlockPlace place;  // where the range goes on; a sequence that begins there may be one that is not dealt
  mutable int left;          // blocks from there on
  mutable int slot;          // that a part takes there
  mutable int whole_round = 0;

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        begins_with_whole(CtaPlaces(ctas(), tile_heads<C>(params)).begins_with_whole(cta())),
        place(work_of<C>().place),
        left(work_of<C>().left),
        slot(2 * work_of<C>().rank) {}

  static __device__ __forceinline__ int cta() { return static_cast<int>(blockIdx.x) / ctas_per_tile(C); }
  static __device__ __forceinline__ int ctas() { return static_cast<int>(gridDim.x) / ctas_per_tile(C); }
  __device__ __forceinline__ int whole_number() const { return whole_tile_of(whole_round, cta(), ctas()); }

  __device__ __forceinline__ bool has(int /*round*/) const {
    return left > 0 || whole_number() < work_of<C>().whole_tiles;
  }
  __device__ __forceinline__ int next(int round, const TileIndex& /*tile*/) const { return round + 1; }

  // Goes on. Behind the last: a tile behind the last.
  __device__ __forceinline__ TileIndex at(int /*round*/) const {
    const StepWork& work = work_of<C>();
    const int number = whole_number();
    const bool is_whole = number < work.whole_tiles && (begins_with_whole || left <= 0);
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
    bool is_found = is_whole || at.m + at.block > 0;
    int tiles, blocks, longest = 0, ends = 0;
    TileIndex tile{};
#pragma unroll 1
    for (;;) {
      if (at.sequence == p.batch) at.sequence = 0, ++at.head;
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
    if (++at.m == tiles) at.m = 0, ++at.sequence;
    place = at;
    return tile;
  }
};

}  // namespace tessera::fmha
