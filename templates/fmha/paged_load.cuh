// The warps that load keys which do not lie dense: all lanes of one for K, of one for V. How a block comes:
// attention/placed_keys.cuh.
#pragma once

#include "attention/placed_keys.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/params.cuh"
#include "fmha/passed_tiles.cuh"
#include "fmha/pools.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Blocks i to count of a tile, by one thread.
template <Config C, class Load, class Ring>
__device__ __forceinline__ void start_alone(const Load& load, unsigned slots, int slot_bytes,
                                            const BarrierRow& all_full, const BarrierRow& all_empty, int end, int i,
                                            int count, Ring ring) {
  int page = load.page_of(end - i * C.tile_n);
#pragma unroll 1
  for (; i <= count; ++i) {
    const int first_key = end - i * C.tile_n;
    const unsigned full = all_full[ring.slot()];
    unsigned to = slots + ring.slot() * slot_bytes;
    ptx::mbarrier_wait_parity(all_empty[ring.slot()], ring.parity() ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, slot_bytes);
#pragma unroll 1
    for (int key = first_key; key < first_key + C.tile_n; key += Load::kBoxKeys) {
      // The next box's entry is on its way, of the next block while its slot is waited for.
      int next = -1;
      if (key + Load::kBoxKeys < first_key + C.tile_n) {
        next = load.page_of(key + Load::kBoxKeys);
      } else if (i < count) {
        next = load.page_of(first_key - C.tile_n);
      }
      load.load_box(to, full, key, page);
      to += Load::kBoxKeys * Load::kSpan;
      page = next;
    }
    ring.advance();
  }
}

// The key blocks of a tile, as load_kv of producer.cuh.
template <Config C, bool kIsV, class Walk>
__device__ __forceinline__ void load_key_blocks(const Params& p, unsigned smem, const Walk& schedule,
                                                const TileIndex& tile, const HeadIndex& at, bool is_real,
                                                RingPosition<load_stages(C, kIsV)>& ring, unsigned& tail_parity) {
  constexpr int kColumns = kIsV ? v_columns(C) : qk_columns(C);
  using Load = attention::KeyLoad<C, kIsV, C.tile_n, kColumns, Params>;
  // Three consumer warpgroups leave loading threads too few registers to look up pages.
  constexpr bool kStartsAlone =
      passes_tiles(C) && !is_dealt(C) && Load::kHasFewBoxes && (!Load::kHasPages || consumer_warpgroups(C) <= 2);
  constexpr LoadRing kRing = load_ring(C, kIsV);
  const unsigned slots = smem + kRing.offset;
  const unsigned all_scales = smem + scales_offset(C, kIsV);
  const auto scales_of = [&](int slot) { return all_scales + slot * scale_slot_bytes(C, kColumns); };
  const BarrierRow all_full = row_at<kRing.full>(smem);
  const BarrierRow all_empty = row_at<kRing.empty>(smem);
  const int slot_bytes = kRing.slot_bytes;
  const int batch = min(at.batch, p.batch - 1);
  const LoadedKeys keys = loaded_keys_of<C>(p, schedule, tile);
  const int valid = valid_keys_of<C>(p, schedule, tile);
  const PooledKeys pooled = has_pools(C) ? pooled_keys<C>(p, tile) : PooledKeys{};
  const int head = is_packed(C) ? at.head : quotient(at.head, quotient(p.heads_q, p.heads_kv));
  const int end = has_pools(C) ? pooled.end : valid;
  const Load load{p,
                  batch,
                  has_pools(C) ? pooled.query : head,
                  cta_of_tile<C>() * Load::kPanels,
                  is_real ? end : 0,
                  C.facts.kv_layout == KvLayout::ragged ? attention::place_of_keys(p, batch).begin : pooled.listed,
                  tile.split == kSharesKeys ? ptx::kEvictNormal : ptx::kEvictFirst};
  const int count = is_real ? keys.count : kIsV ? 0 : 1;
  const unsigned tail = barrier_at<barriers(C).tail>(smem);
  // The tile's first block alone can have a tail. Another block is started before its boxes are waited for, unless
  // there is no second slot.
  int slot_of_tail = -1;
  const auto finish_tail = [&] {
    if (slot_of_tail < 0) return;
    load.finish_tail(slots + slot_of_tail * slot_bytes, all_full[slot_of_tail], tail, tail_parity, keys.end - C.tile_n,
                     scales_of(slot_of_tail));
    tail_parity ^= 1;
    slot_of_tail = -1;
  };
  int pages[Load::kPagesOfLane], next[Load::kPagesOfLane];
  constexpr bool kLooksAhead = Load::kHasPages && !kStartsAlone;
  if constexpr (kLooksAhead) load.find_pages(keys.end - C.tile_n, pages);
  int i = 1;
#pragma unroll 1
  for (; i <= count; ++i) {
    // Blocks behind those that may have, or wait for, a tail.
    if (kStartsAlone && load.has_memory() && i > (kIsV ? load_stages(C, kIsV) : 0)) break;
    const int first_key = keys.end - i * C.tile_n;
    const unsigned full = all_full[ring.slot()];
    const unsigned slot = slots + ring.slot() * slot_bytes;
    // The next block's entries are on their way while this one's slot is waited for.
    if constexpr (kLooksAhead) {
      if (i < count) load.find_pages(first_key - C.tile_n, next);
    } else {
      load.find_pages(first_key, pages);
    }
    ptx::mbarrier_wait_parity(all_empty[ring.slot()], ring.parity() ^ 1);
    if constexpr (C.kv_copy == KvCopy::tma) {
      load.load_boxes(slot, full, tail, first_key, pages[0], scales_of(ring.slot()));
      if constexpr (kIsV) {
        if (i > 1 && load_stages(C, kIsV) > 1) finish_tail();
        if (i == 1 && load.has_tail(first_key)) slot_of_tail = ring.slot();
        if (load_stages(C, kIsV) == 1) finish_tail();
      }
    } else {
      load.copy_keys(slot, first_key, pages);
      if constexpr (has_pools(C) && !kIsV) tell_present<C>(smem, ring.slot(), full, pages);
      ptx::cp_async_mbarrier_arrive_noinc(full);
    }
    if constexpr (kLooksAhead) {
#pragma unroll
      for (int j = 0; j < Load::kPagesOfLane; ++j) pages[j] = next[j];
    }
    ring.advance();
  }
  if constexpr (kIsV && C.kv_copy == KvCopy::tma && load_stages(C, kIsV) > 1) finish_tail();
  if constexpr (kStartsAlone) {
    if (i > count) return;
    if (ptx::elect_sync()) start_alone<C>(load, slots, slot_bytes, all_full, all_empty, keys.end, i, count, ring);
    __syncwarp();
    ring.advance(count + 1 - i);
  }
}

// The warps of K and V, as produce().
template <Config C, bool kIsV, class Walk>
__device__ __forceinline__ void produce_keys(const Params& p, const Walk& schedule, unsigned smem) {
  RingPosition<load_stages(C, kIsV)> ring;
  unsigned tail_parity = 0;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    const bool is_real = schedule.has(round);
    if (!is_real && (!joins_tiles(C) || round == 0)) break;
    tile = schedule.at(round);
    load_key_blocks<C, kIsV>(p, smem, schedule, tile, head_of<C>(p, tile), is_real, ring, tail_parity);
    if (!is_real) break;
  }
}

}  // namespace tessera::fmha
