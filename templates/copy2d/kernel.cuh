// The body of copy2d: one warp, one tile, one barrier. In: tensor maps x and y and the tile counts (see
// spec/copy2d.h). Out: y's tile. One thread does all of it, since a TMA copy is started by one thread and carries the
// whole tile.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/address.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/copy2d.h"

namespace tessera::copy2d {

// A tile's TMA load and store for a rank that is known when the kernel is compiled: one instruction each.
template <int kRank>
__device__ __forceinline__ void load_tile(unsigned to, const ptx::TensorMap& map, unsigned barrier, const int (&c)[5]) {
  if constexpr (kRank == 1) ptx::tma_load_1d(to, map, barrier, c[0]);
  if constexpr (kRank == 2) ptx::tma_load_2d(to, map, barrier, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_load_3d(to, map, barrier, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_load_4d(to, map, barrier, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_load_5d(to, map, barrier, c[0], c[1], c[2], c[3], c[4]);
}

template <int kRank>
__device__ __forceinline__ void store_tile(const ptx::TensorMap& map, unsigned from, const int (&c)[5]) {
  if constexpr (kRank == 1) ptx::tma_store_1d(map, from, c[0]);
  if constexpr (kRank == 2) ptx::tma_store_2d(map, from, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_store_3d(map, from, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_store_4d(map, from, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_store_5d(map, from, c[0], c[1], c[2], c[3], c[4]);
}

template <Config C>
__device__ __forceinline__ void kernel(const ptx::TensorMap& x, const ptx::TensorMap& y, int tiles0, int tiles1,
                                       int tiles2, int tiles3) {
  common::require_legal<why_invalid(C)>();
  constexpr SmemLayout kLayout = smem_layout(C);

  // The only shared memory of the kernel: it starts at the window's first user byte, which is 1,024-byte aligned.
  extern __shared__ __align__(1024) unsigned char smem[];
  if (threadIdx.x != 0) return;
  const unsigned tile = ptx::shared_address(smem);
  const unsigned barrier = tile + static_cast<unsigned>(kLayout.barrier_offset);

  // First coordinates of this CTA's tile: tile counts are at most 2^31 - 1 in product, so the index fits an int.
  const int tiles[4] = {tiles0, tiles1, tiles2, tiles3};
  int coordinates[kMaxRank] = {0, 0, 0, 0, 0};
  int rest = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int d = 0; d < C.rank; ++d) {
    const bool is_last = d == C.rank - 1;
    coordinates[d] = (is_last ? rest : rest % tiles[d < 4 ? d : 3]) * C.box[d];
    if (!is_last) rest /= tiles[d < 4 ? d : 3];
  }

  ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::mbarrier_arrive_expect_tx(barrier, static_cast<int>(transfer_bytes(C)));
  load_tile<C.rank>(tile, x, barrier, coordinates);
  ptx::mbarrier_wait_parity(barrier, 0);

  // Both copies go through the asynchronous proxy and nothing else touches the tile: no fence between them.
  store_tile<C.rank>(y, tile, coordinates);
  ptx::cp_async_bulk_commit_group();
  // The CTA's shared memory may be given away when it exits, so the store must have read it.
  ptx::cp_async_bulk_wait_group_read<0>();
}

}  // namespace tessera::copy2d
