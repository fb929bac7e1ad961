// A consumer warpgroup: 64 query rows of each tile, from Q K^T to O.
//
// Each step issues S_(j+1) = Q K^T and O += P_j V back to back and then works on S_(j+1) as soon as it is there, while
// the second product still runs: the tensor cores have work during the softmax. With two slots for Q the same holds
// from tile to tile: the next tile's first scores are computed beside the last O += P V. With one slot they cannot,
// because O leaves through the slot that the next Q needs.
//
// With ping-pong the warpgroups pass a token: only its holder issues, and hands it on at once, so that their products
// queue up in turns instead of colliding and one's softmax falls into the other's products.
#pragma once

#include "fmha/epilogue.cuh"
#include "fmha/mask.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "ptx/address.cuh"
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
  using KvPosition = RingPosition<C.stages>;
  using QPosition = RingPosition<C.q_stages>;

  const Params& p;
  const unsigned smem;
  const Schedule<C> schedule{p};
  const Scale scale{p.softmax_scale};
  // Taken from lane 0, so that the compiler knows one value for the warp and can keep addresses in uniform registers.
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0) - 1;
  KvPosition kv = KvPosition{}.previous();  // of the last scores that were issued
  QPosition q = QPosition{}.previous();     // of the last tile that was begun
  int first_row = 0;                        // of that tile
  int blocks = 0;                           // its key blocks that are left, the one at hand included
  RowStatistics rows{};

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C.ping_pong) ptx::barrier_sync(kBarrierOfTurn + warpgroup, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    const int next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
    if constexpr (C.ping_pong) ptx::barrier_arrive(kBarrierOfTurn + next, 2 * kWarpgroupThreads);
  }

  __device__ __forceinline__ unsigned wait_k(const KvPosition& at) const {
    ptx::mbarrier_wait_parity(smem + kBarriers.k_full + 8 * at.slot(), at.parity());
    return smem + kLayout.k.offset + at.slot() * kv_slot_bytes(C);
  }
  __device__ __forceinline__ void wait_v(const KvPosition& at) const {
    ptx::mbarrier_wait_parity(smem + kBarriers.v_full + 8 * at.slot(), at.parity());
  }
  __device__ __forceinline__ unsigned v_slot(const KvPosition& at) const {
    return smem + kLayout.v.offset + at.slot() * kv_slot_bytes(C);
  }
  // One arrival of each warp hands a slot back.
  __device__ __forceinline__ void release(int empty_barriers, const KvPosition& at) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem + empty_barriers + 8 * at.slot());
  }
  __device__ __forceinline__ int q_index() const { return q.slot() * kWarpgroups + warpgroup; }
  __device__ __forceinline__ unsigned q_slot() const { return smem + kLayout.q.offset + q_index() * q_slot_bytes(C); }

  // Key blocks at the end of a tile that none of this warpgroup's rows sees, all but one if it has no rows at all.
  __device__ __forceinline__ int hidden_blocks(const TileIndex& tile) const {
    const int begin = tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup;
    const int of_tile = key_blocks<C>(p, tile.m * C.tile_m + C.tile_m);
    const int own = begin < p.seqlen_q ? key_blocks<C>(p, begin + kRowsPerWarpgroup) : 1;
    return of_tile - own;
  }

  // The first of this thread's two rows in a tile; the second is 8 further. Needed rarely, so no register is kept for
  // it.
  __device__ __forceinline__ int row_in_tile() const {
    const int thread = ptx::forget(static_cast<int>(threadIdx.x)) % kWarpgroupThreads;
    return warpgroup * kRowsPerWarpgroup + thread / 32 * 16 + thread % 32 / 4;
  }

  // Goes on to a tile, once its Q is there.
  __device__ __forceinline__ void begin(const TileIndex& tile) {
    q.advance();
    first_row = tile.m * C.tile_m;
    blocks = key_blocks<C>(p, first_row + C.tile_m);
    ptx::mbarrier_wait_parity(smem + kBarriers.q_full + 8 * q_index(), q.parity());
  }

  // Leaves out a block. The turn is taken all the same: each warpgroup has one for each block of a tile.
  __device__ __forceinline__ void skip_block() {
    kv.advance();
    wait_k(kv);
    release(kBarriers.k_empty, kv);
    wait_turn();
    pass_turn();
    wait_v(kv);  // after the turn: with one stage, V comes only once the others have used K
    release(kBarriers.v_empty, kv);
    --blocks;
  }

  // The rare cases: a scale that cannot be folded, a block that holds hidden keys.
  __device__ __forceinline__ void fix_up(Scores<C>& scores) const {
    const int first_key = (blocks - 1) * C.tile_n;
    if (scale.is_applied()) {
#pragma unroll
      for (int v = 0; v < C.tile_n / 2; ++v) scores[v] *= scale.applied;
    }
    if (first_key + C.tile_n > visible_keys<C>(p, first_row + warpgroup * kRowsPerWarpgroup)) {
      apply_mask<C>(scores, p, first_row + row_in_tile(), first_key);
    }
  }

  // What needs only the row sums, so that it can run beside the last product. factor: O is multiplied with it.
  __device__ __forceinline__ void finish_rows(const TileIndex& tile, float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.sum[r] = sum_of_quad(rows.sum[r]);
      factor[r] = rows.sum[r] == 0.0f ? 0.0f : 1.0f / rows.sum[r];
    }
    store_statistics<C>(p, tile, rows, tile.m * C.tile_m + row_in_tile());
    rows = RowStatistics{};
  }

  // The key blocks of a tile after its first, last to first.
  __device__ __forceinline__ void run_blocks(Scores<C>& scores, Probabilities<C>& probabilities,
                                             Accumulator<C>& output) {
    float correction[2];
    const unsigned q_of_tile = q_slot();
#pragma unroll 1
    while (--blocks > 0) {
      KvPosition next = kv;
      next.advance();
      const unsigned k_slot = wait_k(next);
      wait_turn();
      ptx::wgmma_fence();
      issue_scores<C>(scores, q_of_tile, k_slot);
      wait_v(kv);
      ptx::wgmma_fence();
      issue_output<C>(output, probabilities, v_slot(kv));
      pass_turn();

      ptx::wgmma_wait_group<1>();
      ScoreMma<C>::hold(scores);
      release(kBarriers.k_empty, next);
      fix_up(scores);
      const bool is_corrected = update_softmax(scores, rows, scale, correction);
      ptx::wgmma_wait_group<0>();
      OutputMma<C>::hold(output);
      release(kBarriers.v_empty, kv);
      pack<C>(probabilities, scores);
      if (is_corrected) rescale(output, correction);
      kv = next;
    }
  }

  // A tile's last product, with no scores beside it.
  __device__ __forceinline__ void close(const TileIndex& tile, const Probabilities<C>& probabilities,
                                        Accumulator<C>& output, float (&factor)[2]) {
    wait_v(kv);
    ptx::wgmma_fence();
    issue_output<C>(output, probabilities, v_slot(kv));
    finish_rows(tile, factor);
    ptx::wgmma_wait_group<0>();
    OutputMma<C>::hold(output);
  }

  // The first scores of a tile, and beside them the last product of the one before, if it is still open. If not, that
  // product has nothing to do: it multiplies what happens to lie in shared memory into an O that is cleared afterwards.
  // A wgmma in a branch would make ptxas serialise them all, and a second copy of this code would take its time.
  __device__ __forceinline__ void change(bool is_open, const TileIndex& old_tile, const TileIndex& new_tile, int hidden,
                                         Scores<C>& scores, Probabilities<C>& probabilities, Accumulator<C>& output,
                                         float (&factor)[2]) {
    const KvPosition of_v = kv;
    begin(new_tile);
    for (int i = 0; i < hidden; ++i) skip_block();
    kv.advance();
    const unsigned k_slot = wait_k(kv);
    wait_turn();
    ptx::wgmma_fence();
    issue_scores<C>(scores, q_slot(), k_slot);
    if constexpr (C.q_stages == 2) {
      if (is_open) wait_v(of_v);
      ptx::wgmma_fence();
      issue_output<C>(output, probabilities, v_slot(of_v));
    }
    pass_turn();
    if (C.q_stages == 2 && is_open) finish_rows(old_tile, factor);

    ptx::wgmma_wait_group<C.q_stages == 2 ? 1 : 0>();
    ScoreMma<C>::hold(scores);
    release(kBarriers.k_empty, kv);
    fix_up(scores);
    float correction[2];
    update_softmax(scores, rows, scale, correction);
    if constexpr (C.q_stages == 2) {
      ptx::wgmma_wait_group<0>();
      OutputMma<C>::hold(output);
    }
    pack<C>(probabilities, scores);
  }

  __device__ __forceinline__ void run() {
    Scores<C> scores;
    Probabilities<C> probabilities{};
    Accumulator<C> output;
    float factor[2] = {0.0f, 0.0f};
    clear(output);
    bool is_open = false;
    TileIndex old_tile{0, 0, 0};
    int round = 0;
#pragma unroll 1
    while (true) {
      const bool has_new = schedule.has(round);
      if (!has_new && !is_open) break;
      const TileIndex new_tile = schedule.at(round);
      const int hidden = hidden_blocks(new_tile);
      const bool is_closed_alone = is_open && (C.q_stages == 1 || !has_new || hidden > 0);
      const QPosition old_q = q;
      const KvPosition of_v = kv;
      if (is_closed_alone) {
        close(old_tile, probabilities, output, factor);
      } else {
        change(is_open, old_tile, new_tile, hidden, scores, probabilities, output, factor);
      }
      if (is_open) {
        release(kBarriers.v_empty, of_v);
        stage_output<C>(output, factor, warpgroup, old_q, smem);
      }
      clear(output);
      is_open = !is_closed_alone;
      if (is_closed_alone) continue;
      run_blocks(scores, probabilities, output);
      old_tile = new_tile;
      round = schedule.next(round);
    }
  }
};

template <Config C>
__device__ __forceinline__ void consume(const Params& p, unsigned smem) {
  Consumer<C> consumer{p, smem};
  if (consumer.warpgroup == Consumer<C>::kWarpgroups - 1) consumer.pass_turn();  // the first warpgroup begins
  consumer.run();
}

}  // namespace tessera::fmha
