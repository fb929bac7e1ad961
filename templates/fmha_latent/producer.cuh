// The producer warpgroup: two warps load blocks of keys, one the rows of Q.
//
// A slot is loaded panel by panel, each with a barrier of its own, so that scores begin with the first one. A warpgroup
// gives back what it has multiplied as values, so that one half of a slot is on its way again while the other is in
// use. Each half has a warp: neither is late because the other is still in use (128 heads: 4 to 9 % faster than one
// warp for both on an H200). The panel that P lay in comes back with the half of the warpgroup which got that P. A slot
// is free for about as long as a load from memory takes, so where tiles share keys the blocks after the next ones are
// brought to the L2 before. The two CTAs of a cluster load every second panel each, for both, once consumers of both
// have given a half back (128 heads on an H200: up to 2.5 % faster).
#pragma once

#include "fmha_latent/deal.cuh"
#include "fmha_latent/params.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_prefetch.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// A warp loads a block: lane i its box i, of keys that lie side by side. Keys beyond the sequence's, and those of no
// page of the pool, are loaded from behind all rows: zeros.
template <Config C>
struct BlockLoad {
  static constexpr bool kHasPages = C.facts.kv_layout == KvLayout::paged;
  static constexpr int kBoxKeys = box_keys(C);
  static constexpr int kBoxes = kBlockKeys / kBoxKeys;
  static constexpr int kLoadedSpan = widens(C) ? kRawSpanBytes : kSpanBytes;

  const Params& p;
  const int sequence;
  const int keys;  // of the sequence

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // The lane's box of the block at `first_key`: its page, or -1.
  __device__ __forceinline__ int page_of(int first_key) const {
    if constexpr (!kHasPages) return 0;
    const int key = first_key + lane() * kBoxKeys;
    if (lane() >= kBoxes || key >= keys) return -1;
    const int* const table = p.block_table + static_cast<long long>(sequence) * p.max_pages;
    const int page = static_cast<int>(ptx::ld_global_u32(table + quotient(key, C.facts.page_size)));
    return static_cast<unsigned>(page) < static_cast<unsigned>(p.pages) ? page : -1;
  }

  // Where the lane's box of that block begins in its page or sequence, and which one that is.
  __device__ __forceinline__ int row_of(int first_key) const {
    const int key = first_key + lane() * kBoxKeys;
    if constexpr (kHasPages) return key - quotient(key, C.facts.page_size) * C.facts.page_size;
    return key < keys ? key : max(p.seqlen_k, 1);
  }
  __device__ __forceinline__ int outermost_of(int page) const {
    if constexpr (kHasPages) return page < 0 ? max(p.pages, 1) : page;
    return sequence;
  }

  __device__ __forceinline__ void load(unsigned slot, const BarrierRow& full, int first, int count, int first_key,
                                       int page) const {
    if (lane() >= kBoxes) return;
    constexpr unsigned kLoaders = kBoxes == 32 ? 0xffffffffu : (1u << kBoxes) - 1;
    const int row = row_of(first_key), outermost = outermost_of(page);
#pragma unroll 1
    for (int panel = first; panel < first + count; ++panel) {
      if (lane() == 0) ptx::mbarrier_arrive_expect_tx(full[panel], kBlockKeys * kLoadedSpan);
      __syncwarp(kLoaders);
      if constexpr (multicasts(C)) {
        if (panel % 2 != cta_of_pair()) continue;
        ptx::tma_load_5d_multicast(slot + panel * loaded_panel_bytes(C) + lane() * kBoxKeys * kLoadedSpan, p.k,
                                   full[panel], 3, 0, row, panel, 0, outermost);
        continue;
      }
      ptx::tma_load_5d(slot + panel * loaded_panel_bytes(C) + lane() * kBoxKeys * kLoadedSpan, p.k, full[panel], 0, row,
                       panel, 0, outermost);
    }
  }

  // To the L2 alone. The CTAs of a sequence's tiles, which all read the block, have some of its panels each.
  __device__ __forceinline__ void prefetch(int first_key, int page, int tile, int tiles) const {
    if constexpr (!prefetches(C)) return;
    if (lane() >= kBoxes || page < 0 || first_key + lane() * kBoxKeys >= keys) return;
    const int row = row_of(first_key), outermost = outermost_of(page);
#pragma unroll 1
    for (int panel = tile; panel < kPanels; panel += tiles) ptx::tma_prefetch_5d(p.k, 0, row, panel, 0, outermost);
  }
};

// The rows of Q, once those before are in use no more. One thread.
template <Config C>
__device__ __forceinline__ void load_rows(const Params& p, unsigned smem, int sequence, int row, unsigned parity) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  const RowPlace at = place_of<C>(p, sequence, row);
  ptx::mbarrier_wait_parity(barrier_at<kBarriers.q_empty>(smem), parity);
  ptx::mbarrier_arrive_expect_tx(barrier_at<kBarriers.q_full>(smem), q_bytes(C));
#pragma unroll 1
  for (int panel = 0; panel < panels(C); ++panel) {
    ptx::tma_load_5d(smem + kLayout.q.offset + panel * q_panel_bytes(C), p.q, barrier_at<kBarriers.q_full>(smem),
                     panel * kSpanElements, at.head, at.query, 0, at.batch);
  }
}

// All lanes: none still looks for this phase when those that load go on, and with what they load the next one comes.
__device__ __forceinline__ void wait_of_warp(unsigned barrier, unsigned parity) {
  ptx::mbarrier_wait_parity(barrier, parity);
  __syncwarp();
}

// Panels of one half of a slot, or of the other: one copy of the code. The first half's warp also prefetches.
template <Config C>
__device__ __forceinline__ void load_keys(const Params& p, unsigned smem, bool has_first, Walk<C>& walk) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  const int tile = walk.tile(), tiles = tiles_of_sequence<C>(p);
  unsigned parity = 1;
  int ring = 0;  // the next slot, where they are no pair's
  Part part;
#pragma unroll 1
  while (walk.next(part)) {
    const BlockLoad<C> block{p, part.sequence, keys_of<C>(p, part.sequence)};
    int first_key = part.begin * kPairKeys;
    const int end = part.end * kPairKeys;
    // Entries of blocks are looked up one before they are prefetched, so that nothing waits for them.
    int pages[kBlocksAhead + 1];
#pragma unroll
    for (int i = 0; i <= kBlocksAhead; ++i) pages[i] = block.page_of(first_key + i * kBlockKeys);
#pragma unroll
    for (int i = 1; i < kBlocksAhead; ++i)
      if (has_first && first_key + i * kBlockKeys < end)
        block.prefetch(first_key + i * kBlockKeys, pages[i], tile, tiles);
#pragma unroll 1
    for (int index = 0; first_key < end; first_key += kBlockKeys, index ^= 1) {
      const int place = slots(C) == 2 ? index : ring;
      const unsigned slot = smem + kLayout.k.offset + place * slot_bytes(C);
      const BarrierRow full = row_at<kBarriers.k_full>(smem, place * kPanels);
      const BarrierRow empty = row_at<kBarriers.k_empty>(smem, place * kConsumers);
      const int page = pages[0], ahead = first_key + kBlocksAhead * kBlockKeys;
      if (has_first && ahead < end) block.prefetch(ahead, pages[kBlocksAhead], tile, tiles);
#pragma unroll
      for (int i = 0; i < kBlocksAhead; ++i) pages[i] = pages[i + 1];
      pages[kBlocksAhead] = ahead + kBlockKeys < end ? block.page_of(ahead + kBlockKeys) : -1;
      wait_of_warp(empty[has_first ? 0 : 1], parity);
      const int of_second = index == 0 ? kPanels - kPanelsOfHalf : kPanelsOfHalf;
      block.load(slot, full, has_first ? 0 : kPanelsOfHalf, has_first ? kPanelsOfHalf : of_second, first_key, page);
      if (has_first && index == 1) block.load(slot, full, kPanelOfP, 1, first_key, page);
      if constexpr (slots(C) == 2) {
        if (index == 1) parity ^= 1;
      } else {
        ring = ring + 1 < slots(C) ? ring + 1 : 0;
        if (ring == 0) parity ^= 1;
      }
    }
  }
}

template <Config C>
__device__ __forceinline__ void load_rows_of_parts(const Params& p, unsigned smem, Walk<C>& walk) {
  unsigned parity = 1;
  Part part;
  const int row = walk.tile() * C.tile_m;
#pragma unroll 1
  for (; walk.next(part); parity ^= 1) load_rows<C>(p, smem, part.sequence, row, parity);
}

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp > kWarpOfSecondHalf) return;
  Walk<C> walk(p);
  if (warp == kWarpOfK || warp == kWarpOfSecondHalf) {
    load_keys<C>(p, smem, warp == kWarpOfK, walk);
  } else if (ptx::elect_sync()) {
    load_rows_of_parts<C>(p, smem, walk);
  }
}

}  // namespace tessera::fmha_latent
