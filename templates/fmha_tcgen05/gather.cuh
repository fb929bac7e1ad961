// Listed keys that are values too: four warps bring each block to its slot, rows as they are, tokens of a cache widened
// on the way. The slot has panels of 64 keys and 128 bytes under the 128-byte swizzle, as Hopper's family has them,
// whose parts do the work (fmha_latent/gather.cuh, gather_cache.cuh). Values of a cache come to registers before their
// slot is free.
//
// Threads write through the generic proxy and the tensor core reads through the async one: each lane fences what it
// wrote before its warp arrives. Keys that are not there are zeros; the softmax hides their scores.
#pragma once

#include "fmha/ring.cuh"
#include "fmha_latent/gather_cache.cuh"
#include "fmha_tcgen05/listed_keys.cuh"
#include "fmha_tcgen05/pools.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// A slot is full when each warp has written its keys.
template <Config C>
__device__ __forceinline__ void init_gathered_barriers(unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
#pragma unroll 1
  for (int i = 0; i < C.stages; ++i) {
    ptx::mbarrier_init(barrier_at<kBarriers.k_full>(smem, i), kWideningWarps);
    ptx::mbarrier_init(barrier_at<kBarriers.k_empty>(smem, i), 1);
  }
}

// The warp's 16 keys of a block from `first_key` on, of which this lane knows the row of one.
template <Config C>
__device__ __forceinline__ void gather_rows_of_warp(const fmha_latent::ListedKeys<kGather<C>>& keys, unsigned slot,
                                                    unsigned empty, unsigned parity, int first_key, int row) {
  using namespace fmha_latent;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  GatheredKeys gathered{__ballot_sync(0xffffffff, row >= 0) & ((1u << kKeysOfWarp) - 1), {}};
#pragma unroll
  for (int i = 0; i < kStepsOfWarp; ++i) {
    const int of_warp = i * kKeysAtOnce + lane / kLanesOfKey;
    const int its_row = __shfl_sync(0xffffffff, row, of_warp);
    gathered.from[i] = keys.begin_of(first_key + of_warp, its_row) + lane % kLanesOfKey * 16;
  }
  ptx::mbarrier_wait_parity(empty, parity);
  gathered.copy(slot, 0, qk_columns(C) / span_elements(C));
  ptx::cp_async_wait_all();
}

template <Config C>
__device__ __forceinline__ void widen_tokens_of_warp(const fmha_latent::ListedKeys<kGather<C>>& keys, unsigned slot,
                                                     unsigned empty, unsigned parity, int first_key, int row) {
  using namespace fmha_latent;
  constexpr fmha_latent::Config kOwn = kGather<C>;
  RowPlaces<kOwn> places;
  places.find(keys, first_key, row);
  NarrowHalf<kOwn> halves[2];
  Rotation<kOwn> rotation;
#pragma unroll
  for (int i = 0; i < 2; ++i) halves[i].load(i, places);
  rotation.load(places);
  ptx::mbarrier_wait_parity(empty, parity);
  const KeyStore<kOwn> to(slot, 0);
#pragma unroll
  for (int i = 0; i < 2; ++i) halves[i].store(i, to);
  rotation.store(to);
}

// All tiles' blocks, from the last to the first.
template <Config C>
__device__ __forceinline__ void gather_kv(const Params& params, unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  const fmha_latent::Params p = params_of_gather(params);
  const Schedule<C> schedule{params};
  const int first_of_warp = fmha_latent::gather_warp() * fmha_latent::kKeysOfWarp;
  fmha::RingPosition<C.stages> ring;
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
    const KeyBlocks<C> blocks_of(params, tile);
    const Blocks blocks = blocks_of.of_tile();
    const auto keys = listed_keys<C>(p, tile.batch, blocks_of.query);
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block) {
      const int first_key = block * C.tile_n + first_of_warp;
      const int own = first_key + static_cast<int>(threadIdx.x) % fmha_latent::kKeysOfWarp;
      const int row = keys.row_of(own, keys.entry_of(own));
      const unsigned slot = smem + smem_layout(C).k.offset + ring.slot() * k_slot_bytes(C);
      const unsigned empty = barrier_at<kBarriers.k_empty>(smem, ring.slot());
      if constexpr (has_cache(C.facts)) {
        widen_tokens_of_warp<C>(keys, slot, empty, ring.parity() ^ 1, first_key, row);
      } else {
        gather_rows_of_warp<C>(keys, slot, empty, ring.parity() ^ 1, first_key, row);
      }
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.k_full>(smem, ring.slot()));
      ring.advance();
    }
  }
}

}  // namespace tessera::fmha_tcgen05
