// The warp that loads: queries and weights of a tile into a slot, what they see beside it, and tiles of keys into the
// ring.
#pragma once

#include "common/ring.cuh"
#include "indexer/ranges.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp_reduce.cuh"
#include "spec/indexer.h"

namespace tessera::indexer {

inline constexpr int kLoadersBarrier = 2;  // behind that of consumers

// A slot's full barrier.
template <Config C>
__device__ __forceinline__ unsigned query_barrier(unsigned smem, int slot) {
  return common::barrier_at<barriers(C).queries>(smem, slot);
}
template <Config C>
__device__ __forceinline__ unsigned key_barrier(unsigned smem, int slot) {
  return common::barrier_at<barriers(C).keys>(smem, slot);
}
template <Config C>
__device__ __forceinline__ Ranges ranges_of_slot(unsigned smem, int slot) {
  return {smem + smem_layout(C).ranges + slot * ranges_slot_bytes(C)};
}

// Entries of a sequence's table: 32 that are in use, and the 32 behind them, which are on their way to shared memory.
// Waiting for a load of them once in 32 pages let the ring run dry: 0.5 % of the time of long caches on an H200. (By
// cp.async, since the assembler waits for a register's load at the next branch.)
template <Config C>
struct Pages {
  const Params& p;
  unsigned memory;  // of two times 32 entries: what dealing is done with
  int sequence = 0;
  int used = 0;       // entries of the sequence
  int first = 0;      // the first of those that are in use
  unsigned half = 0;  // where they lie

  __device__ __forceinline__ void fetch(int place, unsigned to) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, own = place + lane;
    ptx::cp_async_4(memory + (to * kWarp + static_cast<unsigned>(lane)) * 4, p.first + sequence * p.table_stride + own,
                    own < used);
    ptx::cp_async_commit_group();
  }
  // The whole warp, which has met since it last called at().
  __device__ __forceinline__ void begin(int of_sequence, int place, int entries) {
    sequence = of_sequence;
    used = entries;
    first = place;
    half = 0;
    ptx::cp_async_wait_group<0>();  // of the sequence before
    __syncwarp();
    fetch(first, 0);
    fetch(first + kWarp, 1);
    ptx::cp_async_wait_group<1>();
    __syncwarp();
  }
  // Goes on to where `place` is, which is never further than the next entry.
  __device__ __forceinline__ void reach(int place) {
    if (place < first + kWarp) return;
    ptx::cp_async_wait_group<0>();
    __syncwarp();
    fetch(first + 2 * kWarp, half);
    first += kWarp;
    half ^= 1;
  }
  // -1, which loads zeros, behind the sequence's last page and where the number is no page's.
  __device__ __forceinline__ int at(int place) const {
    if (place >= used) return -1;
    const unsigned page = ptx::ld_shared_u32(memory + (half * kWarp + static_cast<unsigned>(place - first)) * 4);
    return page < static_cast<unsigned>(p.n) ? static_cast<int>(page) : -1;
  }
};

// One lane: keys of a page that lie side by side, and their scales. in_page: 0 where a tile has more than one page.
template <Config C>
__device__ __forceinline__ void load_run(const Params& p, unsigned keys, unsigned scales, unsigned full, int in_page,
                                         int page) {
  ptx::tma_load_3d_with_policy(keys, p.keys, full, ptx::kEvictFirst, 0, in_page, page);
  ptx::tma_load_2d(scales, p.scales, full, C.page_size * row_bytes(C) / 4 + in_page, page);
}

// The whole warp, which is number `loader` of loaders(C): it has the tiles of keys of one consumer, or all of them. The
// first one loads queries too.
template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem, Share share, int loader = 0) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr int kLoaders = loaders(C);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  common::RingPosition<kQuerySlots> of_q;
  common::RingPosition<C.stages> ring;
  Pages<C> pages{p, smem + kLayout.deal + kDealBytes * static_cast<unsigned>(loader)};
  if constexpr (kLoaders > 1) {  // the share lay there, and all have read it
    ptx::barrier_sync(kLoadersBarrier, kWarp * kLoaders);
    ring.slot = loader;
  } else {
    __syncwarp();
  }
  int turn = loader;  // of the next tile of queries, the first tile of keys that is this warp's
  long long left = share.count;
  int key_tile = share.key_tile;
  for (int tile = share.query_tile;; ++tile) {
    const Range own = left > 0 && lane < C.tile_q ? range_of_query<C>(p, tile * C.tile_q + lane) : Range{};
    const int end = static_cast<int>(ptx::redux_max(static_cast<unsigned>(own.end)));
    const int begin = static_cast<int>(ptx::redux_min(own.end > 0 ? static_cast<unsigned>(own.begin) : 0x7fffffffu));
    const KeyTiles all = tiles_between<C>(begin, end);
    if (left > 0 && all.count == 0) continue;
    if (left > 0 && key_tile < 0) {  // its own cost comes first; it may be the share's last
      left += key_tile;
      key_tile = 0;
    }
    const int tiles = static_cast<int>(min(static_cast<long long>(all.count - key_tile), left));
    const int first_key = all.begin + key_tile * tile_keys(C);
    if (kLoaders == 1 || loader == 0) {
      const unsigned full = query_barrier<C>(smem, of_q.slot);
      ptx::mbarrier_wait_parity(common::empty_behind<kQuerySlots>(full), of_q.parity ^ 1);
      const unsigned ranges = ranges_of_slot<C>(smem, of_q.slot).slot;
      if (lane < C.tile_q) {
        ptx::st_shared_u32(ranges + 4 * kRangeWords + 8 * lane, static_cast<unsigned>(own.begin));
        ptx::st_shared_u32(ranges + 4 * kRangeWords + 8 * lane + 4, static_cast<unsigned>(own.end));
      }
      if (lane == 0) {
        ptx::st_shared_u32(ranges, static_cast<unsigned>(tiles));
        ptx::st_shared_u32(ranges + 4, static_cast<unsigned>(first_key));
        ptx::st_shared_u32(ranges + 8, static_cast<unsigned>(tile * C.tile_q));
      }
      __syncwarp();
      if (left <= 0) {
        if (ptx::elect_sync()) ptx::mbarrier_arrive(full);
        break;
      }
      if (ptx::elect_sync()) {
        ptx::mbarrier_arrive_expect_tx(full, query_bytes(C));
        ptx::tma_load_3d(smem + kLayout.q + of_q.slot * q_slot_bytes(C), p.q, full, 0, 0, tile * C.tile_q);
        ptx::tma_load_2d(smem + kLayout.weights + of_q.slot * weights_slot_bytes(C), p.weights, full, 0,
                         tile * C.tile_q);
        if constexpr (is_fp4(C))
          ptx::tma_load_2d(smem + kLayout.q_scales + of_q.slot * query_scales_slot_bytes(C), p.q_scales, full, 0,
                           tile * C.tile_q);
      }
      __syncwarp();
      of_q.advance();
    } else if (left <= 0) {
      break;
    }
    if constexpr (is_paged(C)) pages.begin(tile, first_key / C.page_size, (end + C.page_size - 1) / C.page_size);
#pragma unroll 1
    for (; turn < tiles; turn += kLoaders) {
      const unsigned key_full = key_barrier<C>(smem, ring.slot);
      const unsigned keys = smem + kLayout.keys + ring.slot * key_slot_bytes(C);
      const unsigned scales = smem + kLayout.scales + ring.slot * scales_slot_bytes(C);
      const int key = first_key + turn * tile_keys(C);
      const int place = is_paged(C) ? key / C.page_size : 0;
      int first_page = 0;
      if constexpr (is_paged(C)) {
        pages.reach(place);
        first_page = pages.at(place);  // before the wait, which then is for memory alone
      }
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(key_full), ring.parity ^ 1);
      if (ptx::elect_sync()) {
        ptx::mbarrier_arrive_expect_tx(key_full, key_bytes(C));
        if constexpr (is_paged(C)) {
          load_run<C>(p, keys, scales, key_full, key % C.page_size, first_page);
        } else {
          ptx::tma_load_2d(keys, p.keys, key_full, 0, key);
          ptx::tma_load_1d(scales, p.scales, key_full, key);
        }
      }
      __syncwarp();
      if constexpr (runs(C) > 1) {  // one by one: eight at a time were spilled
#pragma unroll 1
        for (int run = 1; run < runs(C); ++run) {
          const int page = pages.at(place + run);
          if (ptx::elect_sync())
            load_run<C>(p, keys + run * keys_of_run(C) * row_bytes(C), scales + run * 4 * scales_pitch(C), key_full, 0,
                        page);
          __syncwarp();
        }
      }
      if constexpr (kLoaders == 1) {
        ring.advance();
      } else {
        ring.advance(kLoaders);
      }
    }
    turn = kLoaders == 1 ? 0 : turn - tiles;
    left -= tiles;
    key_tile = -kQueryTileCost;
  }
  if constexpr (is_paged(C)) ptx::cp_async_wait_all();
}

}  // namespace tessera::indexer
