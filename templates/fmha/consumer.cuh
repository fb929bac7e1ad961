// A consumer warpgroup: 64 query rows of each tile, from Q K^T to O.
//
// Step i issues S_i = Q K_i^T and O += P_(i-1) V_(i-1) back to back, then works on S_i as soon as it is there, while
// the second product still runs: the tensor cores have work during the softmax. With ping-pong the warpgroups pass a
// token: only its holder issues, and hands it on at once, so that their products queue up in turns instead of colliding
// and one's softmax falls into the other's products.
#pragma once

#include "fmha/epilogue.cuh"
#include "fmha/mask.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kWarpgroups = consumer_warpgroups(C);

  const Params& p;
  const unsigned smem;
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads - 1;
  const int row_in_tile = warpgroup * kRowsPerWarpgroup + static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16 +
                          static_cast<int>(threadIdx.x) % 32 / 4;
  const Scale scale{p.softmax_scale};
  RingPosition<C.q_stages> q_ring{};
  RingPosition<C.stages> kv_ring{};

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C.ping_pong) ptx::barrier_sync(kBarrierOfTurn + warpgroup, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    const int next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
    if constexpr (C.ping_pong) ptx::barrier_arrive(kBarrierOfTurn + next, 2 * kWarpgroupThreads);
  }

  __device__ __forceinline__ unsigned wait_k() const {
    ptx::mbarrier_wait_parity(smem + kBarriers.k_full + 8 * kv_ring.slot(), kv_ring.parity());
    return smem + kLayout.k.offset + kv_ring.slot() * kv_slot_bytes(C);
  }
  __device__ __forceinline__ void release_k() {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem + kBarriers.k_empty + 8 * kv_ring.slot());
    kv_ring.advance();
  }
  // V's block is the one whose K was released last.
  __device__ __forceinline__ unsigned wait_v(const RingPosition<C.stages>& position) const {
    ptx::mbarrier_wait_parity(smem + kBarriers.v_full + 8 * position.slot(), position.parity());
    return smem + kLayout.v.offset + position.slot() * kv_slot_bytes(C);
  }
  __device__ __forceinline__ void release_v(const RingPosition<C.stages>& position) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem + kBarriers.v_empty + 8 * position.slot());
  }

  // The rare cases, one branch for both: a scale that cannot be folded, a block that holds hidden keys.
  __device__ __forceinline__ void fix_up(Scores<C>& scores, int first_row, int block) const {
    const int first_key = block * C.tile_n;
    const bool is_masked = first_key + C.tile_n > visible_keys<C>(p, first_row + warpgroup * kRowsPerWarpgroup);
    if (scale.is_applied) {
#pragma unroll
      for (int v = 0; v < C.tile_n / 2; ++v) scores[v] *= scale.applied;
    }
    if (is_masked) apply_mask<C>(scores, p, first_row + row_in_tile, first_key);
  }

  // The key blocks of one tile, from the last to the first.
  __device__ __forceinline__ void attend(const TileIndex& tile, int blocks, unsigned q_slot, Accumulator<C>& output,
                                         RowStatistics& rows) {
    const int first_row = tile.m * C.tile_m;
    Scores<C> scores;
    Probabilities<C> probabilities;
    float correction[2];

    const unsigned first_k_slot = wait_k();
    ptx::hold(scores);
    ptx::wgmma_fence();
    issue_scores<C>(scores, q_slot, first_k_slot);
    ptx::wgmma_wait_group<0>();
    ptx::hold(scores);
    release_k();
    fix_up(scores, first_row, blocks - 1);
    update_softmax(scores, rows, scale, correction);
    pack<C>(probabilities, scores);

#pragma unroll 1
    for (int block = blocks - 2; block >= 0; --block) {
      const unsigned k_slot = wait_k();
      wait_turn();
      ptx::hold(scores);
      ptx::hold(output);
      ptx::wgmma_fence();
      issue_scores<C>(scores, q_slot, k_slot);
      const RingPosition<C.stages> of_v = kv_ring.previous();
      const unsigned v_slot = wait_v(of_v);
      ptx::wgmma_fence();
      issue_output<C>(output, probabilities, v_slot);
      pass_turn();
      ptx::wgmma_wait_group<1>();
      ptx::hold(scores);
      release_k();
      fix_up(scores, first_row, block);
      update_softmax(scores, rows, scale, correction);
      ptx::wgmma_wait_group<0>();
      ptx::hold(output);
      release_v(of_v);
      pack<C>(probabilities, scores);
      rescale(output, correction);
    }

    const RingPosition<C.stages> of_v = kv_ring.previous();
    const unsigned v_slot = wait_v(of_v);
    ptx::hold(output);
    ptx::wgmma_fence();
    issue_output<C>(output, probabilities, v_slot);
    ptx::wgmma_wait_group<0>();
    ptx::hold(output);
    release_v(of_v);
  }

  __device__ __forceinline__ void work(const TileIndex& tile) {
    Accumulator<C> output;
#pragma unroll
    for (int v = 0; v < C.head_dim / 2; ++v) output[v] = 0.0f;
    RowStatistics rows;
    const int slot = q_ring.slot() * kWarpgroups + warpgroup;
    const unsigned q_slot = smem + kLayout.q.offset + slot * q_slot_bytes(C);
    ptx::mbarrier_wait_parity(smem + kBarriers.q_full + 8 * slot, q_ring.parity());

    const int blocks = key_blocks<C>(p, tile.m);
    if (blocks > 0) attend(tile, blocks, q_slot, output, rows);

    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.sum[r] = sum_of_quad(rows.sum[r]);
      factor[r] = rows.sum[r] == 0.0f ? 0.0f : 1.0f / rows.sum[r];
    }
    store_statistics<C>(p, tile, rows, scale, tile.m * C.tile_m + row_in_tile);
    store_output<C>(p, tile, warpgroup, output, factor, q_slot, smem + kBarriers.q_empty + 8 * slot);
    q_ring.advance();
  }
};

template <Config C>
__device__ __forceinline__ void consume(const Params& p, unsigned smem) {
  Consumer<C> consumer{p, smem};
  if (consumer.warpgroup == Consumer<C>::kWarpgroups - 1) consumer.pass_turn();  // the first warpgroup begins
  Schedule<C>(p).for_each(p, [&](const TileIndex& tile) { consumer.work(tile); });
  // A bulk store must have left before the CTA's shared memory goes.
  ptx::cp_async_bulk_wait_group<0>();
}

}  // namespace tessera::fmha
