// The warps that load keys which do not lie dense: all lanes of one for K, of one for V. How a block comes:
// attention/placed_keys.cuh.
#pragma once

#include "attention/placed_keys.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/keys_ahead.cuh"
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
  int entry = load.entry_of(end - i * C.tile_n);
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
        next = load.entry_of(key + Load::kBoxKeys);
      } else if (i < count) {
        next = load.entry_of(first_key - C.tile_n);
      }
      load.load_box(to, full, key, load.page_of(entry));
      to += Load::kBoxKeys * Load::kSpan;
      entry = next;
    }
    ring.advance();
  }
}

// A CTA's first block, as it was found before the wait: its boxes are started, and their entries looked up again.
template <Config C>
__device__ __forceinline__ void start_first_block(const Params& p, unsigned smem, attention::KnownBlock& known,
                                                  bool is_v) {
  using Load = attention::KeyLoad<C, false, C.tile_n, qk_columns(C), Params, true>;
  constexpr SmemLayout kLayout = smem_layout(C);
  if (p.pages == 0) return;
  const unsigned early = barrier_at<barriers(C).early>(smem, is_v ? 1 : 0);
  const int lane = Load::lane();
  if (known.first_key < 0) {
    if (lane == 0) ptx::mbarrier_arrive(early);
    return;
  }
  // Before the boxes, in whose train they would come: this and a length, which will be looked at again.
  if (known.entry >= 0) {
    const int* const table = p.block_table + static_cast<long long>(known.sequence) * p.max_pages;
    known.page = ptx::ld_global_s32_written(table + known.entry);
  }
  ptx::ld_global_s32_written(p.seqused_k + (is_dealt(C) ? min(lane, p.batch - 1) : known.sequence));
  if (lane == 0) ptx::mbarrier_arrive_expect_tx(early, k_slot_bytes(C));
  __syncwarp();
  const unsigned slot = smem + (is_v ? kLayout.v.offset : kLayout.k.offset);
  const Load load{p, known.sequence, known.head, 0, 0, 0, ptx::kEvictFirst, is_v};
  if (lane < Load::kBoxes)
    load.load_box(slot + lane * Load::kBoxKeys * Load::kSpan, early, known.first_key + lane * Load::kBoxKeys,
                  known.guess);
  __syncwarp();
}

// Whether these are the boxes that the first tile's first block has. If not, its slot is free again when they are
// there.
__device__ __forceinline__ bool is_as_known(const attention::KnownBlock& known, int sequence, int head, int first_key,
                                            int page, unsigned early) {
  const bool is_block = first_key == known.first_key && sequence == known.sequence && head == known.head;
  if (__all_sync(0xffffffff, is_block && page == known.guess)) return true;
  ptx::mbarrier_wait_parity(early, 0);
  return false;
}

// The key blocks of a tile, as load_kv of producer.cuh. kIsEither: of K or of V, as `is_either_v` says.
template <Config C, bool kIsV, bool kIsEither = false, class Walk>
__device__ __forceinline__ void load_key_blocks(const Params& p, unsigned smem, const Walk& schedule,
                                                const TileIndex& tile, const HeadIndex& at, bool is_real,
                                                RingPosition<load_stages(C, kIsV)>& ring, unsigned& tail_parity,
                                                bool is_either_v = kIsV, const attention::KnownBlock& known = {}) {
  constexpr int kColumns = kIsV ? v_columns(C) : qk_columns(C);
  constexpr bool kMayBeV = kIsV || kIsEither;
  const bool is_v = kIsEither ? is_either_v : kIsV;
  using Load = attention::KeyLoad<C, kIsV, C.tile_n, kColumns, Params, kIsEither>;
  // Three consumer warpgroups leave loading threads too few registers to look up pages.
  constexpr bool kStartsAlone =
      passes_prefills(C) && Load::kHasFewBoxes && (!Load::kHasPages || consumer_warpgroups(C) <= 2);
  constexpr LoadRing kRing = load_ring(C, kIsV), kRingOfV = load_ring(C, kMayBeV);
  static_assert(kRing.slot_bytes == kRingOfV.slot_bytes);
  const unsigned slots = smem + (is_v ? kRingOfV.offset : kRing.offset);
  const unsigned all_scales = smem + (is_v ? scales_offset(C, kMayBeV) : scales_offset(C, kIsV));
  const auto scales_of = [&](int slot) { return all_scales + slot * scale_slot_bytes(C, kColumns); };
  const BarrierRow all_full = is_v ? row_at<kRingOfV.full>(smem) : row_at<kRing.full>(smem);
  const BarrierRow all_empty = is_v ? row_at<kRingOfV.empty>(smem) : row_at<kRing.empty>(smem);
  const int slot_bytes = kRing.slot_bytes;
  const int batch = min(at.batch, p.batch - 1);
  // Whether the first block's boxes were started.
  const bool is_early = asks_ahead(C) && known.first_key >= 0 && p.pages > 0;
  const unsigned early = asks_ahead(C) ? barrier_at<barriers(C).early>(smem, kIsV ? 1 : 0) : 0;
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
                  tile.split == kSharesKeys ? ptx::kEvictNormal : ptx::kEvictFirst,
                  is_v,
                  known};
  const int count = is_real ? keys.count : is_v ? 0 : 1;
  const unsigned tail = barrier_at<barriers(C).tail>(smem);
  // The tile's first block alone can have a tail. Another block is started before its boxes are waited for, unless
  // there is no second slot.
  int slot_of_tail = -1, slot_to_clear = -1;
  bool is_tail_early = false;
  const auto finish_tail = [&] {
    if (slot_of_tail < 0) return;
    if (is_tail_early) {
      ptx::mbarrier_wait_parity(early, 0);
      const int first_key = keys.end - C.tile_n;
      load.clear_and_arrive(slots + slot_of_tail * slot_bytes, all_full[slot_of_tail],
                            load.has_tail(first_key) ? load.end - first_key : C.tile_n, 0);
      is_tail_early = false;
      slot_of_tail = -1;
      return;
    }
    load.finish_tail(slots + slot_of_tail * slot_bytes, all_full[slot_of_tail], tail, tail_parity, keys.end - C.tile_n,
                     scales_of(slot_of_tail));
    tail_parity ^= 1;
    slot_of_tail = -1;
  };
  int entries[Load::kPagesOfLane], next[Load::kPagesOfLane];
  constexpr bool kLooksAhead = Load::kHasPages && !kStartsAlone;
  // Of either the walk begins a step before the first block and goes on to the tail, so that each of these has one
  // copy.
  int i = kIsEither ? 0 : 1;
  if constexpr (kLooksAhead && !kIsEither) load.find_entries(keys.end - C.tile_n, entries);
#pragma unroll 1
  for (; i <= count || (kIsEither && slot_of_tail >= 0); ++i) {
    // Blocks behind those that may have, or wait for, a tail.
    if (kStartsAlone && load.has_memory() && i > (is_v ? load_stages(C, kIsV) : 0)) break;
    const int first_key = keys.end - i * C.tile_n;
    const unsigned full = all_full[ring.slot()];
    const unsigned slot = slots + ring.slot() * slot_bytes;
    // The next block's entries are on their way while this one's slot is waited for.
    if constexpr (kLooksAhead) {
      if (i < count) load.find_entries(first_key - C.tile_n, next);
    } else {
      load.find_entries(first_key, entries);
    }
    if (!kIsEither || (i > 0 && i <= count)) {
      ptx::mbarrier_wait_parity(all_empty[ring.slot()], ring.parity() ^ 1);
      if constexpr (C.kv_copy == KvCopy::tma) {
        const bool is_there =
            is_early && i == 1 && is_as_known(known, batch, head, first_key, load.page_of(entries[0]), early);
        if (is_there && is_v) {
          slot_of_tail = ring.slot();
          is_tail_early = true;
          if constexpr (kMayBeV && !kIsEither && load_stages(C, kIsV) == 1) finish_tail();
        } else if (is_there) {
          if (Load::lane() == 0) ptx::mbarrier_arrive(full);
          __syncwarp();
        } else if (!kIsEither || load.has_memory()) {
          load.load_boxes(slot, full, tail, first_key, entries[0], scales_of(ring.slot()));
          if constexpr (kMayBeV) {
            if (!kIsEither && i > 1 && load_stages(C, kIsV) > 1) finish_tail();
            if (i == 1 && load.has_tail(first_key)) slot_of_tail = ring.slot();
            if (!kIsEither && load_stages(C, kIsV) == 1) finish_tail();
          }
        } else {
          slot_to_clear = ring.slot();
        }
      } else {
        load.copy_keys(slot, first_key, entries);
        if constexpr (has_pools(C) && !kIsV) tell_present<C>(smem, ring.slot(), full, entries);
        ptx::cp_async_mbarrier_arrive_noinc(full);
      }
      ring.advance();
    }
    if constexpr (kIsEither && C.kv_copy == KvCopy::tma) {
      // One copy of what clears: the tail, or a block of a pool without pages.
      int first = 0;
      if (slot_of_tail >= 0 && (i > 1 || load_stages(C, kIsV) == 1)) {
        ptx::mbarrier_wait_parity(tail, tail_parity);
        tail_parity ^= 1;
        first = load.end - (keys.end - C.tile_n);
        slot_to_clear = slot_of_tail;
        slot_of_tail = -1;
      }
      if (slot_to_clear >= 0) {
        load.clear_and_arrive(slots + slot_to_clear * slot_bytes, all_full[slot_to_clear], first,
                              scales_of(slot_to_clear));
        slot_to_clear = -1;
      }
    }
    if constexpr (kLooksAhead) {
#pragma unroll
      for (int j = 0; j < Load::kPagesOfLane; ++j) entries[j] = next[j];
    }
  }
  if constexpr (kIsV && !kIsEither && C.kv_copy == KvCopy::tma && load_stages(C, kIsV) > 1) finish_tail();
  if constexpr (kStartsAlone) {
    if (i > count) return;
    if (ptx::elect_sync()) start_alone<C>(load, slots, slot_bytes, all_full, all_empty, keys.end, i, count, ring);
    __syncwarp();
    ring.advance(count + 1 - i);
  }
}

// The warps of K and V, as produce().
template <Config C, bool kIsV, bool kIsEither = false, class Walk>
__device__ __forceinline__ void produce_keys(const Params& p, const Walk& schedule, unsigned smem,
                                             bool is_either_v = kIsV, const attention::KnownBlock& known = {}) {
  RingPosition<load_stages(C, kIsV)> ring;
  unsigned tail_parity = 0;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    const bool is_real = schedule.has(round);
    // Boxes must not come to a CTA that is gone.
    if (asks_ahead(C) && !is_real && round == 0 && known.first_key >= 0 && p.pages > 0)
      ptx::mbarrier_wait_parity(barrier_at<barriers(C).early>(smem, kIsV ? 1 : 0), 0);
    if (!is_real && (!joins_tiles(C) || round == 0)) break;
    tile = schedule.at(round);
    load_key_blocks<C, kIsV, kIsEither>(p, smem, schedule, tile, head_of<C>(p, tile), is_real, ring, tail_parity,
                                        is_either_v, round == 0 ? known : attention::KnownBlock{});
    if (!is_real) break;
  }
}

}  // namespace tessera::fmha
