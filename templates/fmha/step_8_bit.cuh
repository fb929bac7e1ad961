// A consumer's step for 8 bits: that of consumer.cuh with another softmax, and sums that become fp32 now and then.
#pragma once

#include "fmha/consumer.cuh"
#include "fmha/promoted.cuh"
#include "fmha/registers.cuh"
#include "fmha/softmax_8_bit.cuh"
#include "ptx/math.cuh"
#include "ptx/wgmma.cuh"

namespace tessera::fmha {

// Scores become exponents. Whether references move, and `factor`: see step().
template <Config C>
__device__ __forceinline__ bool Consumer<C>::find_exponents(bool is_first, bool is_open, const TileIndex& old_tile,
                                                            float (&factor)[2]) {
  float subtrahend[2] = {is_first ? 0.0f : rows.subtrahend(0), is_first ? 0.0f : rows.subtrahend(1)};
  if (!skips_idle_warps(C) || !is_idle) fix_up();
  [[maybe_unused]] const int own_rows = rows_of<C>(p, lengths()) - first_row - row_in_tile();
  float multiplier = scale.folded;
  // Twice where references move: exponents are lowered by the code that made them.
#pragma unroll 1
  for (bool moves = false;; moves = true) {
    int top[2] = {-1, -1};
    if (!skips_idle_warps(C) || !is_idle) {
      const float addend[2] = {-subtrahend[0], -subtrahend[1]};
      RegistersOf<C>::to_exponents(multiplier, addend, top);
    }
    if (moves) return true;
    if constexpr (has_split_size(C.facts) && is_ragged(C.facts)) {
      if (own_rows <= 0) top[0] = -1;
      if (own_rows <= 8) top[1] = -1;
    }
    // One condition, without branches: both rows are searched at the same time.
    const int has_large = max(top[0], top[1]) > __float_as_int(kSlackOfSteps) ? 1 : 0;
    if (!__any_sync(0xffffffff, (static_cast<int>(is_first) | static_cast<int>(rows.has_blank()) | has_large) != 0))
      return false;
    float max[2], correction[2];
    RegistersOf<C>::find_maxima(max);
    if constexpr (has_split_size(C.facts) && is_ragged(C.facts)) leave_out_foreign_rows(max);
    if (is_first && is_open) finish_rows(opened(old_tile), factor);
    if (is_first) rows = {};
    raise_references(rows, max, subtrahend, correction);
    multiplier = 1.0f;
    if (!is_first) {
      factor[0] = correction[0];
      factor[1] = correction[1];
    }
  }
}

// The steps of a tile's blocks that are left, and its last product. Promotion and end have one copy of the sum. The
// steps between two promotions are a loop of their own, as lean as without.
template <Config C>
__device__ __forceinline__ void Consumer<C>::walk_and_close(const TileIndex& tile, int round) {
  constexpr int kBlocks = blocks_of_promotion(C);
  float factor[2];
#pragma unroll 1
  for (;;) {
    const int last = blocks / kBlocks * kBlocks;
#pragma unroll 1
    for (; blocks >= max(last, 1); --blocks) step<true>(false, true, tile, tile);
    if (last == 0) multiply_last(tile_of(tile, round), factor);
    const PromotedSums<C> kept = promoted_of(tile);
    add_promoted<C>(kept, smem, warpgroup);
    if (last == 0) break;
    keep_promoted<C>(kept, rows.sum, smem, warpgroup);
    accumulate = 0;
  }
  if constexpr (keeps_sums_in_o(C)) give_up_sums();
  forget_promoted<C>(smem, warpgroup);
  leave(tile_of(tile, round), factor);
}

template <Config C>
template <bool kHasOutput>
__device__ __forceinline__ void Consumer<C>::step_8_bit(bool is_first, bool is_open, const TileIndex& old_tile,
                                                        const TileIndex& tile) {
  const KvPosition of_v = looks_ahead(C) ? of_output : kv;
  const unsigned of_k = go_on();
  wait_turn();
  ptx::wgmma_fence();
  issue_scores<C>(low_of_q(), of_k);
  if constexpr (kHasOutput) {
    // Threads write to slots: what is multiplied for nothing is a block that is there, and stays.
    const KvPosition read = looks_ahead(C) || is_open ? of_v : kv;
    wait_v(read);
    ptx::wgmma_fence();
    issue_output<C>(v_slot(read), accumulate);
  }
  ptx::wgmma_wait_group<kHasOutput ? 1 : 0>();
  pass_turn();  // not at once: warpgroups whose exponentials begin together wait for each other
  release<kBarriers.k_empty>(kv);
  float factor[2];
  const bool moves = find_exponents(is_first, is_open, old_tile, factor);
  if constexpr (kHasOutput) {
    ptx::wgmma_wait_group<0>();
    if (is_open) release<kBarriers.v_empty>(of_v);
  }
  look_ahead();
  if (!skips_idle_warps(C) || !is_idle) RegistersOf<C>::make_probabilities(rows.sum);
  // The sums of a tile that ends and those that are promoted have one copy of the code.
  const bool promotes = promotes_in_steps(C) && blocks == promotion;
  if (kHasOutput && (moves || promotes) && is_open) {
    if constexpr (promotes_in_steps(C)) {
      TileIndex kept_of = tile;  // no reference to either: they would lie in memory
      if (is_first) kept_of = old_tile;
      const PromotedSums<C> kept = promoted_of(kept_of);
      if (is_first || promotes) add_promoted<C>(kept, smem, warpgroup);
      if (is_first) {
        if constexpr (keeps_sums_in_o(C)) give_up_sums();
        forget_promoted<C>(smem, warpgroup);
      } else if (!promotes) {
        scale_promoted<C>(smem, warpgroup, factor);
      }
      if (moves) RegistersOf<C>::rescale(factor);
      if (promotes) {
        keep_promoted<C>(kept, rows.sum, smem, warpgroup);
        promotion -= blocks_of_promotion(C);
      }
    } else {
      if constexpr (C.promote_every > 0) scale_promoted<C>(smem, warpgroup, factor);
      RegistersOf<C>::rescale(factor);
    }
    if (is_first) hand_over_registers(opened(old_tile), q.previous());
  }
  accumulate = is_first || promotes ? 0 : 1;
}

}  // namespace tessera::fmha
