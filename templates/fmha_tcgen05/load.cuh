// The loading warps: one thread each for K and V, and for Q.
//
// K runs one block ahead of V, as the products use them. A CTA of a pair loads its half of everything; both halves
// count at the even CTA's barrier, where the products are issued. Every tile's Q is loaded, even if no key is visible:
// O leaves through Q's slot, and the slot changes hands the same way each time.
//
// Without any key, K and V are not there to be loaded, not even rows past their end: see ptx/clear_shared.cuh. All
// threads clear the slots before the roles begin, for the pair's issuer reads the other CTA's too.
#pragma once

#include "fmha/ring.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/clear_shared.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_pair_tile.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

using fmha::RingPosition;

// Waits until a slot is empty and announces what all CTAs of the tile will load into it; returns the barrier at which
// the loads count.
template <Config C>
__device__ __forceinline__ unsigned begin_load(unsigned full, unsigned empty, unsigned parity, int bytes) {
  ptx::mbarrier_wait_parity(empty, parity ^ 1);
  if (cta_of_tile<C>() == 0) ptx::mbarrier_arrive_expect_tx(full, bytes * ctas_per_tile(C));
  return C.cta_pair ? ptx::mapa(full, 0) : full;
}

template <Config C>
__device__ __forceinline__ void load_any_box(unsigned destination, const ptx::TensorMap& map, unsigned barrier, int c0,
                                             int c1, int c2, int c3, int c4) {
  if constexpr (C.cta_pair) {
    ptx::tma_load_5d_pair(destination, map, barrier, c0, c1, c2, c3, c4);
  } else {
    ptx::tma_load_5d(destination, map, barrier, c0, c1, c2, c3, c4);
  }
}
template <Config C>
__device__ __forceinline__ void load_box(unsigned destination, const ptx::TensorMap& map, unsigned barrier, int row,
                                         int panel, int head, int batch) {
  load_any_box<C>(destination, map, barrier, 0, row, panel, head, batch);
}

// A slot of `panels` panels of `rows` rows, from `column` on: one box, or where columns are padded one for each panel.
template <Config C>
__device__ __forceinline__ void load_rows(unsigned destination, const ptx::TensorMap& map, unsigned barrier, int rows,
                                          int row, int column, int panels, int head, int batch) {
  if constexpr (is_padded(C.facts)) {
#pragma unroll 1
    for (int panel = 0; panel < panels; ++panel)
      load_any_box<C>(destination + panel * rows * swizzle_span_bytes(C.swizzle), map, barrier,
                      column + panel * span_elements(C), row, 0, head, batch);
  } else {
    load_box<C>(destination, map, barrier, row, column / span_elements(C), head, batch);
  }
}

// V of one block: a box for each product; K-major, a box for each panel of keys.
template <Config C>
__device__ __forceinline__ void load_v(const Params& p, unsigned slot, unsigned barrier, int key, int head, int batch) {
#pragma unroll
  for (int product = 0; product < pv_products(C); ++product) {
    const int column = product * pv_columns(C) + cta_of_tile<C>() * v_columns(C);
    const unsigned part = slot + product * v_part_bytes(C);
    if constexpr (C.facts.v_layout == Layout::mn_major) {
      load_rows<C>(part, p.v, barrier, C.tile_n, key, column, v_columns(C) / span_elements(C), head, batch);
    } else {
      constexpr int kPanelBytes = v_columns(C) * swizzle_span_bytes(C.swizzle);
#pragma unroll 1
      for (int panel = 0; panel < C.tile_n / span_elements(C); ++panel) {
        const int first = key + panel * span_elements(C);
        if constexpr (C.cta_pair) {
          ptx::tma_load_4d_pair(part + panel * kPanelBytes, p.v, barrier, first, column, head, batch);
        } else {
          ptx::tma_load_4d(part + panel * kPanelBytes, p.v, barrier, first, column, head, batch);
        }
      }
    }
  }
}

// All threads, without any key.
template <Config C>
__device__ __forceinline__ void clear_kv(unsigned smem) {
  constexpr LoadRing kFirst = load_ring(C, false), kLast = load_ring(C, true);
  ptx::clear_shared(smem + kFirst.offset, kLast.offset + load_stages(C) * kLast.slot_bytes - kFirst.offset,
                    static_cast<int>(threadIdx.x), num_threads(C));
}

// Hands the cleared slots over, one of K and one of V a tile.
template <Config C>
__device__ __forceinline__ void load_nothing(const Params& p, unsigned smem) {
  constexpr LoadRing kK = load_ring(C, false), kV = load_ring(C, true);
  const Schedule<C> schedule{p};
  RingPosition<load_stages(C)> ring;
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    if constexpr (is_ragged(C.facts)) schedule.at(round);  // goes on
    const int slot = ring.slot();
    begin_load<C>(barrier_at<kK.full>(smem, slot), barrier_at<kK.empty>(smem, slot), ring.parity(), 0);
    if constexpr (!is_latent(C))
      begin_load<C>(barrier_at<kV.full>(smem, slot), barrier_at<kV.empty>(smem, slot), ring.parity(), 0);
    ring.advance();
  }
}

// K and V of all tiles. Step i of a tile loads K of the i-th block from the end and V of the one before it.
template <Config C>
__device__ __forceinline__ void load_kv(const Params& p, unsigned smem) {
  constexpr LoadRing kK = load_ring(C, false), kV = load_ring(C, true);
  const Schedule<C> schedule{p};
  RingPosition<load_stages(C)> k_ring, v_ring;
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
    const int head = is_packed(C) ? tile.head : quotient(tile.head, quotient(p.heads_q, p.heads_kv));
    const KeyBlocks<C> keys(p, tile);
    const Blocks blocks = keys.of_tile();
    // A tile that sees no key loads rows in front of the first instead, which are zeros: 0 * V must not meet an
    // infinity.
    const int first_key = blocks.is_hidden ? -(blocks.begin + 1) * C.tile_n : keys.key_of(0);
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin - (is_latent(C) ? 0 : 1); --block) {
      if (block >= blocks.begin) {
        const int slot = k_ring.slot();
        const unsigned barrier =
            begin_load<C>(barrier_at<kK.full>(smem, slot), barrier_at<kK.empty>(smem, slot), k_ring.parity(), kK.bytes);
        load_rows<C>(smem + kK.offset + slot * kK.slot_bytes, p.k, barrier, k_rows(C),
                     block * C.tile_n + first_key + cta_of_tile<C>() * k_rows(C), 0, qk_columns(C) / span_elements(C),
                     head, tile.batch);
        k_ring.advance();
      }
      if (!is_latent(C) && block + 1 < blocks.end) {
        const int slot = v_ring.slot();
        const unsigned barrier =
            begin_load<C>(barrier_at<kV.full>(smem, slot), barrier_at<kV.empty>(smem, slot), v_ring.parity(), kV.bytes);
        load_v<C>(p, smem + kV.offset + slot * kV.slot_bytes, barrier, (block + 1) * C.tile_n + first_key, head,
                  tile.batch);
        v_ring.advance();
      }
    }
  }
}

template <Config C>
__device__ __forceinline__ void load_q(const Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  const Schedule<C> schedule{p};
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
#pragma unroll 1
    for (int t = 0; t < q_tiles(C); ++t) {
      const unsigned barrier =
          begin_load<C>(barrier_at<kBarriers.q_full>(smem, t), barrier_at<kBarriers.q_empty>(smem, t),
                        static_cast<unsigned>(round) & 1, q_bytes(C));
      const unsigned slot = smem + kLayout.q.offset + t * q_slot_bytes(C);
      const int row = first_row<C>(tile, t);
      if constexpr (is_packed(C)) {
        // Rows of a panel that belong to no query are never written: what they give stays in them.
#pragma unroll 1
        for (int panel = 0; panel < qk_columns(C) / span_elements(C); ++panel) {
          load_any_box<C>(slot + panel * rows_per_cta(C) * swizzle_span_bytes(C.swizzle), p.q, barrier,
                          panel * span_elements(C), row % padded_heads(C),
                          first_query<C>(p, tile.batch) + row / padded_heads(C), tile.head, sequence_of_map<C>(tile));
        }
      } else {
        load_rows<C>(slot, p.q, barrier, rows_per_cta(C), first_query<C>(p, tile.batch) + row, 0,
                     qk_columns(C) / span_elements(C), tile.head, sequence_of_map<C>(tile));
      }
    }
  }
}

}  // namespace tessera::fmha_tcgen05
