// 8-bit keys and values: the roles that the CTA has besides. What they are: spec/fmha_widened.h, and for 8 bits in all
// spec/fmha_transposed.h.
#pragma once

#include "attention/widen.cuh"
#include "attention/widen_scaled.cuh"
#include "fmha/epilogue.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/paged_load.cuh"
#include "fmha/params.cuh"
#include "fmha/passed_tiles.cuh"
#include "fmha/producer.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/transpose.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// The ring is a constant of its own: a call of load_ring() would be compiled, with all that the layout is made of.
template <Config C, bool kIsV>
__device__ __forceinline__ void init_raw_ring(unsigned smem) {
  constexpr int kLoaders = C.kv_copy == KvCopy::cp_async ? 32 : 1, kStages = load_stages(C, kIsV);
  constexpr int kReaders = is_8_bit(C.facts) ? kTransposingWarps : has_raw_tiles(C) ? kConsumerWarps : kWideningWarps;
  constexpr LoadRing kRing = load_ring(C, kIsV);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    ptx::mbarrier_init(smem + kRing.full[i], kLoaders);
    ptx::mbarrier_init(smem + kRing.empty[i], kReaders);
    if constexpr (has_raw_tiles(C))
      ptx::mbarrier_init(smem + (kIsV ? barriers(C).raw_v_ready : barriers(C).raw_k_ready)[i], kWideningWarps);
  }
}

template <Config C>
__device__ __forceinline__ void init_raw_barriers(unsigned smem) {
  if constexpr (!is_8_bit(C.facts)) init_raw_ring<C, false>(smem);
  init_raw_ring<C, true>(smem);
}

// The key blocks of a tile for dense keys; as load_kv of producer.cuh. kIsEither: of K or of V, as `is_v` says.
template <Config C, bool kIsV, bool kIsEither = false, class Walk>
__device__ __forceinline__ void load_raw(const Params& p, unsigned smem, const Walk& schedule, const TileIndex& tile,
                                         const HeadIndex& at, bool is_real, RingPosition<load_stages(C, kIsV)>& ring,
                                         bool is_v = kIsV) {
  constexpr LoadRing kRing = load_ring(C, kIsV), kRingOfV = load_ring(C, kIsV || kIsEither);
  static_assert(kRing.slot_bytes == kRingOfV.slot_bytes);
  const int offset = is_v ? kRingOfV.offset : kRing.offset;
  const int head = C.pack_gqa > 1 ? at.head : quotient(at.head * p.heads_kv, p.heads_q);
  const LoadedKeys keys = loaded_keys_of<C>(p, schedule, tile);
  const int count = is_real ? keys.count : is_v ? 0 : 1;
#pragma unroll 1
  for (int i = 1; i <= count; ++i) {
    const int slot = ring.slot();
    const unsigned full = is_v ? barrier_at<kRingOfV.full>(smem, slot) : barrier_at<kRing.full>(smem, slot);
    const unsigned empty = is_v ? barrier_at<kRingOfV.empty>(smem, slot) : barrier_at<kRing.empty>(smem, slot);
    ptx::mbarrier_wait_parity(empty, ring.parity() ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, kRing.slot_bytes);
    ptx::tma_load_5d(smem + offset + ring.slot() * kRing.slot_bytes, is_v ? p.v : p.k, full, 0, keys.end - i * C.tile_n,
                     0, head, at.batch);
    ring.advance();
  }
}

// A loading warp: V; or Q and K, of each tile Q first. kIsEither: the one or the other, as `is_v` says.
template <Config C, bool kIsV, bool kIsEither = false, class Walk>
__device__ __forceinline__ void load_tiles(const Params& p, const Walk& schedule, unsigned smem, bool is_v = kIsV) {
  RingPosition<load_stages(C, kIsV)> ring;
  RingPosition<C.q_stages> q_ring;
  [[maybe_unused]] unsigned tail_parity = 0;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    const bool is_real = schedule.has(round);
    if (!is_real && (!joins_tiles(C) || round == 0)) break;
    tile = schedule.at(round);
    const HeadIndex at = head_of<C>(p, tile);
    if constexpr (copies_q(C) && kIsEither) {
      copy_q<C>(p, smem, tile, at, is_real, q_ring, is_v ? 1 : 0, 2);
    } else if constexpr (copies_q(C) && !kIsV) {
      copy_q<C>(p, smem, tile, at, is_real, q_ring);
    }
    if (ptx::elect_sync()) {
      if (!is_v) load_q<C>(p, smem, tile, at, q_ring);
      if constexpr (C.facts.kv_layout == KvLayout::dense)
        load_raw<C, kIsV, kIsEither>(p, smem, schedule, tile, at, is_real, ring, is_v);
    }
    __syncwarp();
    if constexpr (C.facts.kv_layout != KvLayout::dense)
      load_key_blocks<C, kIsV, kIsEither>(p, smem, schedule, tile, at, is_real, ring, tail_parity, is_v);
    if (!is_real) break;
    q_ring.advance();
  }
}

// Both loading warps, where the one of K finds the tiles and tells the others.
template <Config C>
__device__ __forceinline__ void load_found(const Params& p, unsigned smem, bool is_v) {
  if constexpr (loads_alike(C)) {
    load_tiles<C, false, true>(p, FoundTiles<C>{p, smem, !is_v}, smem, is_v);
  } else if (is_v) {
    load_tiles<C, true>(p, PassedTiles<C>{smem}, smem);
  } else {
    load_tiles<C, false>(p, FoundTiles<C>{p, smem, true}, smem);
  }
}

template <Config C, class Walk>
__device__ __forceinline__ void load_widened(const Params& p, const Walk& schedule, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4 * (1 + consumer_warpgroups(C));
  if constexpr (passes_tiles(C)) {
    load_found<C>(p, smem, warp != 0);
  } else {
    if (warp == 0) return load_tiles<C, false>(p, schedule, smem);
    load_tiles<C, true>(p, schedule, smem);
  }
}

// 8 bits in all: the producer warpgroup.
template <Config C, class Walk>
__device__ __forceinline__ void load_and_transpose(const Params& p, const Walk& schedule, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if constexpr (passes_tiles(C)) {
    if (warp == kWarpOfK || warp == kWarpOfV) return load_found<C>(p, smem, warp == kWarpOfV);
  } else {
    if (warp == kWarpOfK) return load_tiles<C, false>(p, schedule, smem);
    if (warp == kWarpOfV) return load_tiles<C, true>(p, schedule, smem);
  }
  transpose_tiles<C>(p, schedule, smem);
}

// The widening warps of K, or of V: block after block, as loads bring them.
template <Config C, bool kIsV, class Walk>
__device__ __forceinline__ void widen_tiles(const Params& p, const Walk& schedule, unsigned smem) {
  constexpr LoadRing kRing = load_ring(C, kIsV);
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kSlots = kIsV ? smem_layout(C).v.offset : smem_layout(C).k.offset;
  constexpr int kSlotBytes = kIsV ? v_slot_bytes(C) : k_slot_bytes(C);
  constexpr BarrierRow kFull = kIsV ? kBarriers.v_full : kBarriers.k_full;
  constexpr BarrierRow kEmpty = kIsV ? kBarriers.v_empty : kBarriers.k_empty;
  [[maybe_unused]] constexpr BarrierRow kReady = kIsV ? kBarriers.raw_v_ready : kBarriers.raw_k_ready;
  const int thread = static_cast<int>(threadIdx.x) % (32 * kWideningWarps);
  RingPosition<load_stages(C, kIsV)> raw;
  RingPosition<C.stages> wide;
  TileIndex tile{0, 0};
#pragma unroll 1
  for (int round = 0;; round = schedule.next(round, tile)) {
    const bool is_real = schedule.has(round);
    if (!is_real && (!joins_tiles(C) || round == 0)) break;
    tile = schedule.at(round);
    const int count = is_real ? loaded_keys_of<C>(p, schedule, tile).count : kIsV ? 0 : 1;
    if constexpr (has_raw_tiles(C)) {
      if (schedule.is_raw()) {
        RingPosition<load_stages(C, false)> ready = schedule.raw_places().ready;
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          ptx::mbarrier_wait_parity(barrier_at<kRing.full>(smem, raw.slot()), raw.parity());
          __syncwarp();
          if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kReady>(smem, ready.slot()));
          raw.advance();
          ready.advance();
        }
        continue;
      }
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait_parity(barrier_at<kRing.full>(smem, raw.slot()), raw.parity());
      ptx::mbarrier_wait_parity(barrier_at<kEmpty>(smem, wide.slot()), wide.parity() ^ 1);
      constexpr int kColumns = kIsV ? v_columns(C) : qk_columns(C);
      const unsigned from = smem + kRing.offset + raw.slot() * kRing.slot_bytes;
      const unsigned to = smem + kSlots + wide.slot() * kSlotBytes;
      if constexpr (has_key_scales(C.facts)) {
        const unsigned scales = smem + scales_offset(C, kIsV) + raw.slot() * scale_slot_bytes(C, kColumns);
        attention::widen_scaled_slot<C, kColumns, kWideningWarps>(from, scales, to, thread);
      } else {
        // Two loads at once are as fast here as four.
        attention::widen_slot<C, kIsV ? p_dtype(C) : C.facts.dtype, kColumns, kWideningWarps, attention::NothingBetween,
                              true, swizzle_of_keys(C, kColumns)>(from, to, thread);
      }
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        ptx::mbarrier_arrive(barrier_at<kFull>(smem, wide.slot()));
        if constexpr (has_raw_tiles(C)) {
          ptx::mbarrier_arrive_times(barrier_at<kRing.empty>(smem, raw.slot()), kConsumerWarps / kWideningWarps);
        } else {
          ptx::mbarrier_arrive(barrier_at<kRing.empty>(smem, raw.slot()));
        }
      }
      raw.advance();
      wide.advance();
    }
    if (!is_real) break;
  }
}

template <Config C, class Walk>
__device__ __forceinline__ void widen(const Params& p, const Walk& schedule, unsigned smem) {
  if (threadIdx.x / 32 < kWideningWarps) return widen_tiles<C, false>(p, schedule, smem);
  widen_tiles<C, true>(p, schedule, smem);
}

// A tile's O leaves from registers: its Q is used no more. `row`: the thread's first.
template <Config C>
__device__ __forceinline__ void store_whole(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                            int row, int warpgroup, const RingPosition<C.q_stages>& q, unsigned smem) {
  if constexpr (leaves_by_slot<C>()) return store_by_slot<C>(p, output, tile, warpgroup, q, smem);
  const int index = q.slot() * row_groups(C) + warpgroup;
  // With the slot goes the tile's message, which all lanes have read.
  if constexpr (passes_tiles(C) && !owns_rows(C)) __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<barriers(C).q_empty>(smem, index));
  if constexpr (shares_tiles<C>()) {
    if (!works_on(tile, warpgroup)) return;
  }
  store_rows<C>(p, output, tile, row);
}

// A descale [batch, heads_kv] of a tile; of one beyond the last, the last sequence's.
template <Config C>
__device__ __forceinline__ float descale_of(const Params& p, const float* descale, long long stride_batch,
                                            long long stride_head, const TileIndex& tile) {
  if (descale == nullptr) return widened_unit(C.facts);
  const HeadIndex at = head_of<C>(p, tile);
  const int head = C.pack_gqa > 1 ? at.head : quotient(at.head * p.heads_kv, p.heads_q);
  const float* const of_tile = descale + min(at.batch, p.batch - 1) * stride_batch + head * stride_head;
  return __uint_as_float(ptx::ld_global_u32(of_tile)) * widened_unit(C.facts);
}

}  // namespace tessera::fmha
