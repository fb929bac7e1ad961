// A consumer's step for 8 bits: that of consumer.cuh with another softmax, and sums that become fp32 now and then.
#pragma once

#include "fmha/consumer.cuh"
#include "fmha/promoted.cuh"
#include "fmha/softmax_8_bit.cuh"
#include "ptx/math.cuh"
#include "ptx/wgmma.cuh"

namespace tessera::fmha {

// Scores become exponents. Whether references move, and `factor`: see step().
template <Config C>
__device__ __forceinline__ bool Consumer<C>::find_exponents(Scores<C>& scores, bool is_first, bool is_open,
                                                            const TileIndex& old_tile, float (&factor)[2]) {
  float subtrahend[2] = {is_first ? 0.0f : rows.subtrahend(0), is_first ? 0.0f : rows.subtrahend(1)};
  ptx::order_after_wait(subtrahend[0], subtrahend[1]);  // on which all that is computed from scores depends
  if (!skips_idle_warps(C) || !is_idle) fix_up(scores);
  [[maybe_unused]] const int own_rows = rows_of<C>(p, lengths()) - first_row - row_in_tile();
  float multiplier = scale.folded;
  // Twice where references move: exponents are lowered by the code that made them.
#pragma unroll 1
  for (bool moves = false;; moves = true) {
    int top[2] = {-1, -1};
    if (!skips_idle_warps(C) || !is_idle) to_exponents(scores, multiplier, subtrahend, top);
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
    find_maxima(scores, Scale(Scale::Folded{1.0f}), max);
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

// Exponents become probabilities, are summed and packed: a part while the exponentials of the next are under way.
template <Config C>
__device__ __forceinline__ void Consumer<C>::make_probabilities(Scores<C>& scores, Probabilities<C>& probabilities) {
  float sum[4] = {rows.sum[0], rows.sum[1], 0.0f, 0.0f};
  raise_to_powers(scores, 0);
#pragma unroll
  for (int step = 0; step < output_steps(C); ++step) {
    if (step + 1 < output_steps(C)) raise_to_powers(scores, kPart * (step + 1));
    add_up(scores, kPart * step, sum);
    pack_step<C>(probabilities, scores, step);
  }
  rows.sum[0] = sum[0] + sum[2];
  rows.sum[1] = sum[1] + sum[3];
}

// The steps of a tile's blocks that are left. Those between two promotions are a loop of their own, as lean as without.
template <Config C>
template <class Step>
__device__ __forceinline__ void Consumer<C>::walk_promoting(bool is_first, const TileIndex& tile,
                                                            Accumulator<C>& output, const Step& step_of_block) {
  constexpr int kBlocks = blocks_of_promotion(C);
#pragma unroll 1
  while (blocks > 0) {
    // The block behind whose step sums are promoted, 0: none is left. A tile's first step ends the tile before.
    const int last = (is_first ? blocks - 1 : blocks) / kBlocks * kBlocks;
#pragma unroll 1
    for (; blocks >= max(last, 1); --blocks) step_of_block();
    if (last > 0) {
      const PromotedSums<C> kept = promoted_of(tile);
      add_promoted<C>(output, kept, smem, warpgroup);
      keep_promoted<C>(output, kept, rows.sum, smem, warpgroup);
      accumulate = 0;
    }
    is_first = false;
  }
}

// The same up to a tile's end, with its last product. Promotion and end have one copy of the sum.
template <Config C>
__device__ __forceinline__ void Consumer<C>::walk_and_close(const TileIndex& tile, int round,
                                                            Probabilities<C>& probabilities, Accumulator<C>& output) {
  constexpr int kBlocks = blocks_of_promotion(C);
  float factor[2];
#pragma unroll 1
  for (;;) {
    const int last = blocks / kBlocks * kBlocks;
#pragma unroll 1
    for (; blocks >= max(last, 1); --blocks) step<true>(false, true, tile, probabilities, output);
    if (last == 0) multiply_last(tile_of(tile, round), probabilities, output, factor);
    const PromotedSums<C> kept = promoted_of(tile);
    add_promoted<C>(output, kept, smem, warpgroup);
    if (last == 0) break;
    keep_promoted<C>(output, kept, rows.sum, smem, warpgroup);
    accumulate = 0;
  }
  if constexpr (keeps_sums_in_o(C)) give_up_sums();
  forget_promoted<C>(smem, warpgroup);
  leave(tile_of(tile, round), output, factor);
}

template <Config C>
template <bool kHasOutput>
__device__ __forceinline__ void Consumer<C>::step_8_bit(bool is_first, bool is_open, const TileIndex& old_tile,
                                                        Probabilities<C>& probabilities, Accumulator<C>& output) {
  Scores<C> scores;
  const KvPosition of_v = looks_ahead(C) ? of_output : kv;
  const unsigned of_k = go_on();
  wait_turn();
  ptx::wgmma_fence();
  issue_scores<C>(scores, q_slot(), of_k);
  if constexpr (kHasOutput) {
    // Threads write to slots: what is multiplied for nothing is a block that is there, and stays.
    const KvPosition read = looks_ahead(C) || is_open ? of_v : kv;
    wait_v(read);
    ptx::wgmma_fence();
    issue_output<C>(output, probabilities, v_slot(read), accumulate);
  }
  pass_turn();

  ptx::wgmma_wait_group<kHasOutput ? 1 : 0>();
  ptx::order_after_wait(scores[0], scores[2]);
  ptx::order_after_wait(scores[4], scores[6]);
  release<kBarriers.k_empty>(kv);
  float factor[2];
  const bool moves = find_exponents(scores, is_first, is_open, old_tile, factor);
  if constexpr (kHasOutput) {
    ptx::wgmma_wait_group<0>();
    if (is_open) release<kBarriers.v_empty>(of_v);
  }
  look_ahead();
  if (!skips_idle_warps(C) || !is_idle) {
    make_probabilities(scores, probabilities);
  }
  if (kHasOutput && moves) {
    ptx::order_after_wait(factor[0], factor[1]);
    if (is_open) {
      if constexpr (C.promote_every > 0) follow(old_tile, output, is_first, factor);
      rescale(output, factor);
      if (is_first) hand_over(output, opened(old_tile), q.previous());
    }
  }
  accumulate = is_first ? 0 : 1;
}

}  // namespace tessera::fmha
