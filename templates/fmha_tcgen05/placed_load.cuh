// The loading warp of K and V where keys do not lie dense: in pages of a pool, or packed sequence behind sequence. All
// of its lanes load a block; how: attention/placed_keys.cuh. K runs one block ahead of V, as in load.cuh.
#pragma once

#include "attention/placed_keys.cuh"
#include "fmha/ring.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// One block into the next slot of a ring.
template <Config C, BarrierRow kFull, BarrierRow kEmpty, class Load>
__device__ __forceinline__ void load_placed_block(const Load& load, unsigned smem, unsigned slots, int slot_bytes,
                                                  unsigned scales, unsigned tail, unsigned& tail_parity, int first_key,
                                                  fmha::RingPosition<load_stages(C)>& ring) {
  const unsigned full = barrier_at<kFull>(smem, ring.slot());
  const unsigned slot = slots + ring.slot() * slot_bytes;
  const unsigned of_slot = scales + ring.slot() * C.tile_n * Load::kScales;
  int entries[Load::kPagesOfLane];
  load.find_entries(first_key, entries);
  ptx::mbarrier_wait_parity(barrier_at<kEmpty>(smem, ring.slot()), ring.parity() ^ 1);
  if constexpr (C.kv_copy == KvCopy::tma) {
    load.load_boxes(slot, full, tail, first_key, entries[0], of_slot);
    if (load.has_tail(first_key)) {
      load.finish_tail(slot, full, tail, tail_parity, first_key, of_slot);
      tail_parity ^= 1;
    }
  } else {
    load.copy_keys(slot, first_key, entries);
    ptx::cp_async_wait_all();
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (Load::lane() == 0) ptx::mbarrier_arrive(full);
  }
  ring.advance();
}

// K and V of all tiles, as load_kv.
template <Config C>
__device__ __forceinline__ void load_placed_keys(const Params& p, unsigned smem) {
  // Keys that are values too are cleared behind a sequence's end as values are.
  using LoadOfK = attention::KeyLoad<C, is_latent(C), C.tile_n, qk_columns(C), Params>;
  using LoadOfV = attention::KeyLoad<C, true, C.tile_n, v_columns(C), Params>;
  constexpr LoadRing kK = load_ring(C, false), kV = load_ring(C, true);
  constexpr Barriers kBarriers = barriers(C);
  const Schedule<C> schedule{p};
  fmha::RingPosition<load_stages(C)> k_ring, v_ring;
  const unsigned tail = barrier_at<kBarriers.tail>(smem);
  unsigned tail_parity = 0;
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
    const int head = is_packed(C) ? tile.head : quotient(tile.head, quotient(p.heads_q, p.heads_kv));
    const KeyBlocks<C> keys(p, tile);
    const Blocks blocks = keys.of_tile();
    // A tile that sees no key gets zeros: 0 * V must not meet an infinity.
    const int end = blocks.is_hidden ? 0 : keys.lengths.k;
    const int origin = C.facts.kv_layout == KvLayout::ragged ? attention::place_of_keys(p, tile.batch).begin : 0;
    const LoadOfK load_k{p, tile.batch, head, 0, end, origin};
    const LoadOfV load_v{p, tile.batch, head, 0, end, origin};
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin - (is_latent(C) ? 0 : 1); --block) {
      if (block >= blocks.begin)
        load_placed_block<C, kK.full, kK.empty>(load_k, smem, smem + kK.offset, kK.slot_bytes,
                                                smem + scales_offset(C, false), tail, tail_parity, block * C.tile_n,
                                                k_ring);
      if (!is_latent(C) && block + 1 < blocks.end)
        load_placed_block<C, kV.full, kV.empty>(load_v, smem, smem + kV.offset, kV.slot_bytes,
                                                smem + scales_offset(C, true), tail, tail_parity,
                                                (block + 1) * C.tile_n, v_ring);
    }
  }
}

}  // namespace tessera::fmha_tcgen05
