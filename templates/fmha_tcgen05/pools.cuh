// Keys in two pools: those that a query lists, then those of a sliding window. A tile is one query.
//
// Blocks [0, listed) hold listed keys, tile_n of the list in each; the blocks behind them the window's. The last of
// these ends with the last key that the query sees, so that nothing behind it is loaded: it may hold anything. Listed
// rows come by gather4, four to an instruction; where the list says none, a row past the pool's end is asked for, which
// TMA fills with zeros, and the softmax hides its score. That it does rests on the PTX manual alone, see
// ptx/tma_gather.cuh; why not cp.async: docs/fmha-tcgen05.md.
#pragma once

#include "attention/pools.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/listed_keys.cuh"
#include "fmha_tcgen05/load.cuh"
#include "ptx/tma_gather.cuh"

namespace tessera::fmha_tcgen05 {

template <Config C>
struct KeyBlocks<C, true> {
  const Params& p;
  const TileIndex& tile;
  const int query;
  const int length;  // of the query's list
  const int listed;  // blocks
  const int end;     // keys of the window that the query sees
  const int origin;  // key of the window at which its first block begins: 0, or less

  __device__ __forceinline__ KeyBlocks(const Params& params, const TileIndex& of_tile)
      : p(params),
        tile(of_tile),
        query(of_tile.m * used_rows_of_tile(C) / padded_heads(C)),
        length(attention::list_length(params, of_tile.batch, query)),
        listed(gathers(C) ? 0 : (length + C.tile_n - 1) / C.tile_n),
        end(attention::window_end<C>(params, of_tile.batch, query)),
        origin(gathers(C) ? -length : end - (end + C.tile_n - 1) / C.tile_n * C.tile_n) {}

  // Keys that are gathered are blocks in one row, the list's first: each may have some that are none.
  __device__ __forceinline__ bool is_listed(int block) const { return gathers(C) || block < listed; }
  // The window's key at which a block begins.
  __device__ __forceinline__ int key_of(int block) const { return (block - listed) * C.tile_n + origin; }
  __device__ __forceinline__ Keys visible(int) const { return {0, end}; }
  // Without any key, one block of the window, which lies in front of its first key. Split: the tile's part.
  __device__ __forceinline__ Blocks of_tile() const {
    const int blocks = listed + (end - origin + (gathers(C) ? C.tile_n - 1 : 0)) / C.tile_n;
    const Blocks all = blocks == 0 ? Blocks{0, 1, true} : Blocks{0, blocks};
    if constexpr (is_split(C)) return attention::part_of(all, tile.split, p.num_splits);
    return all;
  }
  __device__ __forceinline__ Blocks of_q_tile(int) const { return of_tile(); }

  // Row of the pool at place `i` of the query's list; where there is none, one behind the pool's last.
  __device__ __forceinline__ int row_of(int i) const {
    return attention::listed_row(p, tile.batch, query, i, length, max(p.seqlen_k, 1));
  }
  // Whether there is a key at place `i` of a listed block's row.
  __device__ __forceinline__ bool has(int i) const {
    if constexpr (gathers(C)) {
      const fmha_latent::Params of_gather = params_of_gather(p);
      const auto keys = listed_keys<C>(of_gather, tile.batch, query);
      return keys.row_of(i, keys.entry_of(i)) >= 0;
    } else {
      return row_of(i) < p.seqlen_k;
    }
  }
};

// By all lanes of the loading warp, each with its own fours of keys. `columns` from `first_column` on, in panels.
template <Config C>
__device__ __forceinline__ void gather_rows(const KeyBlocks<C>& keys, unsigned slot, const ptx::TensorMap& map,
                                            unsigned barrier, int first, int count, int first_column, int columns) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
#pragma unroll 1
  for (int four = static_cast<int>(threadIdx.x) % 32; four < count / 4; four += 32) {
    const int rows[4] = {keys.row_of(first + 4 * four), keys.row_of(first + 4 * four + 1),
                         keys.row_of(first + 4 * four + 2), keys.row_of(first + 4 * four + 3)};
#pragma unroll 1
    for (int panel = 0; panel < columns / span_elements(C); ++panel) {
      const unsigned to = slot + (panel * count + 4 * four) * kSpan;
      const int column = first_column + panel * span_elements(C);
      if constexpr (C.cta_pair) {
        ptx::tma_gather4_pair(to, map, barrier, column, rows);
      } else {
        ptx::tma_gather4(to, map, barrier, column, rows);
      }
    }
  }
}

// As begin_load, for a whole warp: what is announced comes before any of its loads.
template <Config C>
__device__ __forceinline__ unsigned begin_load_of_warp(unsigned full, unsigned empty, unsigned parity, int bytes) {
  ptx::mbarrier_wait_parity(empty, parity ^ 1);
  if (cta_of_tile<C>() == 0 && threadIdx.x % 32 == 0) ptx::mbarrier_arrive_expect_tx(full, bytes * ctas_per_tile(C));
  __syncwarp();
  return C.cta_pair ? ptx::mapa(full, 0) : full;
}

// K and V of all tiles, as load_kv.
template <Config C>
__device__ __forceinline__ void load_pools(const Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  const bool is_first_lane = threadIdx.x % 32 == 0;
  const Schedule<C> schedule{p};
  RingPosition<C.stages> k_ring, v_ring;
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
    const KeyBlocks<C> keys(p, tile);
    const Blocks blocks = keys.of_tile();
    const auto key_of = [&](int block) { return blocks.is_hidden ? -C.tile_n : keys.key_of(block); };
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin - 1; --block) {
      if (block >= blocks.begin) {
        const int slot = k_ring.slot();
        const unsigned barrier =
            begin_load_of_warp<C>(barrier_at<kBarriers.k_full>(smem, slot), barrier_at<kBarriers.k_empty>(smem, slot),
                                  k_ring.parity(), k_slot_bytes(C));
        const unsigned to = smem + kLayout.k.offset + slot * k_slot_bytes(C);
        const int of_cta = cta_of_tile<C>() * k_rows(C);
        if (keys.is_listed(block)) {
          gather_rows<C>(keys, to, p.k, barrier, block * C.tile_n + of_cta, k_rows(C), 0, qk_columns(C));
        } else if (is_first_lane) {
          load_rows<C>(to, *p.swa_k, barrier, k_rows(C), key_of(block) + of_cta, 0, qk_columns(C) / span_elements(C), 0,
                       tile.batch);
        }
        k_ring.advance();
      }
      if (block + 1 < blocks.end) {
        const int slot = v_ring.slot();
        const unsigned barrier =
            begin_load_of_warp<C>(barrier_at<kBarriers.v_full>(smem, slot), barrier_at<kBarriers.v_empty>(smem, slot),
                                  v_ring.parity(), v_slot_bytes(C));
        const unsigned to = smem + kLayout.v.offset + slot * v_slot_bytes(C);
#pragma unroll 1
        for (int product = 0; product < pv_products(C); ++product) {
          const int column = product * pv_columns(C) + cta_of_tile<C>() * v_columns(C);
          const unsigned part = to + product * v_part_bytes(C);
          if (keys.is_listed(block + 1)) {
            gather_rows<C>(keys, part, p.v, barrier, (block + 1) * C.tile_n, C.tile_n, column, v_columns(C));
          } else if (is_first_lane) {
            load_rows<C>(part, *p.swa_v, barrier, C.tile_n, key_of(block + 1), column, v_columns(C) / span_elements(C),
                         0, tile.batch);
          }
        }
        v_ring.advance();
      }
    }
  }
}

}  // namespace tessera::fmha_tcgen05
