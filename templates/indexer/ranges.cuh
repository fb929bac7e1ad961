// Which keys queries see, whatever the numbers in memory are, and how tiles of keys are dealt to CTAs.
#pragma once

#include "indexer/params.cuh"
#include "ptx/global.cuh"
#include "ptx/shared_words.cuh"
#include "spec/indexer.h"

namespace tessera::indexer {

// Keys [begin, end); none: both 0.
struct Range {
  int begin = 0, end = 0;
};

// Those of a query that have a column, too.
template <Config C>
__device__ __forceinline__ Range range_of_query(const Params& p, int query) {
  Range range;
  if (query >= p.m) return range;
  if constexpr (is_paged(C)) {
    const int sequence = query / C.next_n;
    const long long keys = static_cast<long long>(p.max_pages) * C.page_size;
    if constexpr (C.context_lengths == ContextLengths::query) {
      range.end = static_cast<int>(ptx::ld_global_u32(p.last + query));
    } else {
      // The queries are the last of the sequence's tokens. A length near the least number must not wrap around.
      range.end = max(static_cast<int>(ptx::ld_global_u32(p.last + sequence)), 0) - (C.next_n - 1 - query % C.next_n);
    }
    range.end = static_cast<int>(min(static_cast<long long>(min(range.end, p.columns)), keys));
  } else {
    range.begin = max(static_cast<int>(ptx::ld_global_u32(p.first + query)), 0);
    range.end = min(static_cast<int>(ptx::ld_global_u32(p.last + query)), p.n);
    if constexpr (C.score_columns == ScoreColumns::compressed) {
      if (range.end > range.begin) range.end = range.begin + min(range.end - range.begin, p.columns);
    } else {
      range.end = min(range.end, p.columns);
    }
  }
  if (range.end <= range.begin) range = {};
  return range;
}

// Of all keys that a tile of queries sees, in whole tiles from the first.
struct KeyTiles {
  int begin = 0;  // a key
  int count = 0;  // tiles
};
template <Config C>
__device__ __forceinline__ KeyTiles tiles_between(int begin, int end) {
  if (end <= 0) return {};
  begin = begin / kKeyAlignment * kKeyAlignment;
  return {begin, (end - begin + tile_keys(C) - 1) / tile_keys(C)};
}
template <Config C>
__device__ __forceinline__ KeyTiles key_tiles(const Params& p, int tile) {
  int begin = 0x7fffffff, end = 0;
#pragma unroll
  for (int i = 0; i < C.tile_q; ++i) {
    const Range range = range_of_query<C>(p, tile * C.tile_q + i);
    if (range.end > 0) begin = min(begin, range.begin);
    end = max(end, range.end);
  }
  return tiles_between<C>(begin, end);
}

__device__ __forceinline__ int cost_of(const KeyTiles& tiles) {
  return tiles.count > 0 ? tiles.count + kQueryTileCost : 0;
}

template <Config C>
__device__ __forceinline__ int query_tiles(const Params& p) {
  return static_cast<int>((static_cast<long long>(p.m) + C.tile_q - 1) / C.tile_q);
}

// A CTA's share of all tiles of keys: `count`, with what tiles of queries cost, from tile `key_tile` of the tile of
// queries `query_tile` on.
struct Share {
  int query_tile = 0;
  int key_tile = 0;  // below 0: so much of the tile of queries' own cost comes before the first
  long long count = 0;
};

// Where it is kept: sums of warps in front, of which there are 20 at most.
inline constexpr int kShareOffset = 192;

// All threads; every one has some neighbouring tiles of queries. The share is in shared memory, at `deal`.
template <Config C>
__device__ __forceinline__ void deal(const Params& p, unsigned char* memory) {
  constexpr int kWarps = threads(C) / kWarp;
  auto* const sums = reinterpret_cast<long long*>(memory);
  auto* const share = reinterpret_cast<Share*>(memory + kShareOffset);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int all = query_tiles<C>(p), each = (all + threads(C) - 1) / threads(C);
  const int from = static_cast<int>(min(static_cast<long long>(thread) * each, static_cast<long long>(all)));
  const int to = static_cast<int>(min(static_cast<long long>(from) + each, static_cast<long long>(all)));
  long long own = 0;
#pragma unroll 2
  for (int tile = from; tile < to; ++tile) own += cost_of(key_tiles<C>(p, tile));
  long long sum = own;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const long long below = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += below;
  }
  if (lane == kWarp - 1) sums[warp] = sum;
  if (thread == 0) *share = {};
  __syncthreads();
  long long before = sum - own, total = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    const long long of_warp = sums[i];
    if (i < warp) before += of_warp;
    total += of_warp;
  }
  const long long ctas = gridDim.x, cta = blockIdx.x;
  const long long begin = total / ctas * cta + min(cta, total % ctas);
  const long long count = total / ctas + (cta < total % ctas ? 1 : 0);
  if (count > 0 && before <= begin && begin < before + own) {
    int tile = from;
    long long left = begin - before;
    for (;;) {
      const int cost = cost_of(key_tiles<C>(p, tile));
      if (left < cost) break;
      left -= cost;
      ++tile;
    }
    *share = {tile, static_cast<int>(left) - kQueryTileCost, count};
  }
  __syncthreads();
}

// What lies beside a slot of queries, in words: tiles of keys (0: that was all), first key, first query, and then of
// each query its range.
inline constexpr int kRangeWords = 4;
struct Ranges {
  unsigned slot;  // its address

  __device__ __forceinline__ int tiles() const { return static_cast<int>(ptx::ld_shared_u32(slot)); }
  __device__ __forceinline__ int first_key() const { return static_cast<int>(ptx::ld_shared_u32(slot + 4)); }
  __device__ __forceinline__ int first_query() const { return static_cast<int>(ptx::ld_shared_u32(slot + 8)); }
  __device__ __forceinline__ Range of_query(int i) const {
    unsigned begin, end;
    ptx::ld_shared_v2(slot + 4 * kRangeWords + 8 * static_cast<unsigned>(i), begin, end);
    return {static_cast<int>(begin), static_cast<int>(end)};
  }
};

}  // namespace tessera::indexer
