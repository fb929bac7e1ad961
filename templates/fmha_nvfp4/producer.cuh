// The load warp: one thread brings K, V and delta_s of each step to the ring, ahead of the consumers, across tiles too.
#pragma once

#include "common/ring.cuh"
#include "fmha_nvfp4/tiles.cuh"
#include "ptx/bulk.cuh"
#include "ptx/mbarrier.cuh"

namespace tessera::fmha_nvfp4 {

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr BarrierRow kFull = full_barriers(C);
  const int columns = attention::blocks_of_rows<nvfp4::kBlockRows>(p.seqlen_k) * nvfp4::kBlockRows;
  common::RingPosition<C.stages> ring;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < num_tiles<C>(p); index += static_cast<int>(gridDim.x)) {
    const Tile<C> tile(p, index);
    const long long keys = tile.key_block(p) * nvfp4::key_block_bytes(C.facts.head_dim);
    const float* const delta_s = p.delta_s + (tile.query_block(p) + tile.first_row / nvfp4::kBlockRows) * columns;
#pragma unroll 1
    for (int block = tile.first_block; block < tile.end_block; ++block) {
      const unsigned full = common::barrier_at<kFull>(smem, ring.slot);
      const long long at = keys + static_cast<long long>(block) * key_slot_bytes(C);
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, slot_bytes(C));
      ptx::bulk_load(smem + kLayout.k.offset + ring.slot * key_slot_bytes(C), static_cast<const char*>(p.k) + at,
                     key_slot_bytes(C), full);
      ptx::bulk_load(smem + kLayout.delta_s.offset + ring.slot * delta_slot_bytes(C),
                     delta_s + static_cast<long long>(block) * C.tile_n, delta_slot_bytes(C), full);
      ptx::bulk_load(smem + kLayout.v.offset + ring.slot * key_slot_bytes(C), static_cast<const char*>(p.v) + at,
                     key_slot_bytes(C), full);
      ring.advance();
    }
  }
}

}  // namespace tessera::fmha_nvfp4
