// The consumer warpgroups: the same 64 rows, one half of O's columns each.
//
// Of a pair of blocks the first warpgroup has the scores of block 0, the second those of block 1. Both add up P0 V0 and
// then P1 V1, each over its own columns:
//
//   first    S0 ... softmax, P0 ->  O += P0 V0                 <- P1  O += P1 V1
//   second        S1 ...   <- P0    O += P0 V0 | softmax, P1 ->       O += P1 V1
//
// so that each one's softmax runs beside products of the other, and the second's beside one of its own. The references
// go from block to block: a block's are those of the block before, moved where its own scores exceed them. Who gets P
// gets its references, and rescales what it has if they moved.
#pragma once

#include "attention/sink.cuh"
#include "fmha/softmax.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/epilogue.cuh"
#include "fmha_latent/matmul.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/registers.cuh"
#include "fmha_latent/tails.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// One copy of the code for both warpgroups: with one for each NVRTC took 1.4 times as long. Of a pair each has a path
// of its own, in which `own`, its index, may be a constant. Gathered keys that are dealt have one path for both
// (add_in_turn()), in which the second warpgroup's softmax runs beside the first one's product alone: on an H200 up to
// 11 % faster there, and 2 to 6 % slower where keys are not dealt, or stand in pages.
template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);

  const Params& p;
  const unsigned smem;
  const int index;  // which warpgroup, and which block of a pair is its own
  const fmha::Scale scale{p.softmax_scale};
  Walk<C> walk{p};
  fmha::RowStatistics rows{};
  unsigned parity = 0;  // of slots
  int keys = 0;         // of the part's sequence
  const int first_row = walk.tile() * kRows;

  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x) % kWarpgroupThreads; }
  // The first of this thread's two rows; the second is 8 further.
  __device__ __forceinline__ static int row_of(int thread) { return thread / 32 * 16 + thread % 32 / 4; }
  __device__ __forceinline__ static int row() { return row_of(thread()); }
  // At a part's end: where gathered keys are dealt no register is left to keep what follows from it.
  __device__ __forceinline__ static int row_of_end() { return row_of(gathers(C) ? ptx::forget(thread()) : thread()); }
  __device__ __forceinline__ void sync_warpgroup(int own) const {
    ptx::barrier_sync(kBarrierOfWarpgroup + own, kWarpgroupThreads);
  }

  __device__ __forceinline__ unsigned slot(int block) const { return smem + kLayout.k.offset + block * kSlotBytes; }
  __device__ __forceinline__ unsigned values(int block, int own) const {
    return slot(block) + own * kPanelsOfHalf * kPanelBytes;
  }
  __device__ __forceinline__ unsigned p_of(int block) const { return slot(block) + kPanelOfP * kPanelBytes; }
  __device__ __forceinline__ unsigned references(int block) const {
    return smem + kLayout.references.offset + (block * kRows + row()) * 4;
  }

  // This warpgroup reads a slot no more.
  __device__ __forceinline__ void release(int block, int own) const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    const unsigned empty = barrier_at<kBarriers.k_empty>(smem, block * kConsumers + own);
    ptx::mbarrier_arrive(empty);
    // The other CTA's threads write there too, or its TMA. What threads of this one wrote there, P and zeros, went
    // through a proxy fence to wgmma, whose reads have been waited for: it is not on its way any more.
    if constexpr (shares_keys(C)) ptx::mbarrier_arrive_cluster(ptx::mapa(empty, other_cta()));
  }

  // The end of the keys that a row sees.
  __device__ __forceinline__ int visible_end(int own_row) const {
    if constexpr (C.facts.mask == Mask::none) return keys;
    return min(keys, (first_row + own_row) / C.pack_gqa + 1 + keys - p.seqlen_q);
  }

  // What lies in a block behind the last key is nobody's, and 0 times a NaN is one. Threads that gather write zeros.
  __device__ __forceinline__ void clear_behind(int first_key) const {
    if constexpr (C.facts.seqused == UsedLengths::none || gathers(C)) return;
    const int valid = keys - first_key;
    if (valid <= 0 || valid >= kBlockKeys) return;
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel)
      ptx::mbarrier_wait_parity(barrier_at<kBarriers.k_full>(smem, index * kPanels + panel), parity);
#pragma unroll 1
    for (int i = thread(); i < (kBlockKeys - valid) * kPanels * 8; i += kWarpgroupThreads) {
      const int chunk = i % 8, behind = i / 8 / kPanels, panel = i / 8 % kPanels;
      ptx::st_shared_v4_f32(slot(index) + panel * kPanelBytes + (valid + behind) * kSpanBytes + 16 * chunk, 0.0f, 0.0f,
                            0.0f, 0.0f);
    }
    ptx::fence_proxy_async_shared();
    sync_warpgroup(index);
  }

  // Of a block that was gathered, whose missing keys no row sees.
  __device__ __forceinline__ void hide_missing(int own) const {
    constexpr unsigned kAll = (1u << kKeysOfWarp) - 1;
    const ptx::Words4 present = ptx::ld_shared_v4(smem + kLayout.present.offset + own * kGatherWarps * 4);
    if (!scale.is_applied() && (present.x & present.y & present.z & present.w) == kAll) return;
    const int own_column = 2 * (static_cast<int>(threadIdx.x) % 4);
    const unsigned words[kGatherWarps] = {present.x >> own_column, present.y >> own_column, present.z >> own_column,
                                          present.w >> own_column};
    RegistersOf<C>::hide_missing(scale.factor(), words);
  }

  // The rare cases: a scale that cannot be folded, a block with keys that some row does not see.
  __device__ __forceinline__ void fix_up(int first_key, int own) const {
    if constexpr (gathers(C)) {
      hide_missing(own);
    } else {
      if (!scale.is_applied() && first_key + kBlockKeys <= visible_end(0)) return;
      const int own_column = first_key + 2 * (static_cast<int>(threadIdx.x) % 4);
      const int ends[2] = {visible_end(row()) - own_column, visible_end(row() + 8) - own_column};
      RegistersOf<C>::hide_behind(scale.factor(), ends);
    }
  }

  // S of the own block, complete.
  __device__ __forceinline__ void compute_scores(int first_key, bool is_last) {
    clear_behind(first_key);
    // Addresses that follow from this one are not worth a register from pair to pair.
    const unsigned base = static_cast<unsigned>(ptx::forget(static_cast<int>(smem)));
    issue_scores<C>(base + kLayout.q.offset, base + kLayout.k.offset + index * kSlotBytes,
                    row_at<kBarriers.k_full>(base, index * full_barriers(C)), parity);
    ptx::wgmma_wait_group<0>();
    if (is_last && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.q_empty>(smem));
  }

  // Scores, of which `max` are the largest, to P, for this warpgroup and the other one. True: references moved, O takes
  // the factors.
  __device__ __forceinline__ bool make_probabilities(int own, const float (&max)[2], float (&factor)[2]) {
    const bool moves = __any_sync(0xffffffff, rows.is_exceeded(max));
    if (moves) rows.move(max, factor);
    const float addend[2] = {-rows.subtrahend(0), -rows.subtrahend(1)};
    RegistersOf<C>::exponentiate(scale.folded, addend, rows.sum);
    RegistersOf<C>::pack();
    // All warps' products with the panel that P replaces are done.
    sync_warpgroup(own);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row_of_lane = thread() / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
    const unsigned address =
        swizzle_address(C.swizzle, p_of(own) + static_cast<unsigned>(row_of_lane * kSpanBytes + lane / 16 * 16));
    RegistersOf<C>::store_probabilities(address);
    if (lane % 4 == 0) {
      ptx::st_shared_f32(references(own), rows.reference[0]);
      ptx::st_shared_f32(references(own) + 8 * 4, rows.reference[1]);
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.p_full>(smem, own));
    return moves;
  }

  // Waits for the other one's P and takes its references. True: they moved, O takes the factors.
  __device__ __forceinline__ bool take_references(int own, float (&factor)[2]) {
    const int other = 1 - own;
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.p_full>(smem, other), parity);
    if constexpr (gathers(C)) ptx::fence_proxy_async_shared();  // threads wrote the block that P belongs to
    const float taken[2] = {ptx::ld_shared_f32(references(other)), ptx::ld_shared_f32(references(other) + 8 * 4)};
    const bool moves = __any_sync(0xffffffff, taken[0] != rows.reference[0] || taken[1] != rows.reference[1]);
    if (!moves) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float before = rows.reference[r];
      rows.reference[r] = taken[r];
      factor[r] = ptx::ex2(before - rows.subtrahend(r));
      rows.sum[r] *= factor[r];
    }
    return true;
  }

  // O += P V of the other one's block.
  __device__ __forceinline__ void add_other(int own, int accumulate) {
    float factor[2];
    if (take_references(own, factor)) RegistersOf<C>::rescale(factor);
    issue_other<C>(p_of(1 - own), values(1 - own, own), accumulate);
  }

  // A pair, of whose own block there are scores: the second warpgroup's softmax runs beside its product with the first
  // one's P.
  __device__ __forceinline__ void add_beside(const float (&max)[2], int accumulate) {
    float factor[2];
    // Beside threads that widen, a register in place of these constants cost up to 2.6 % (H200).
    const int first = has_cache(C.facts) ? 0 : index, second = has_cache(C.facts) ? 1 : index;
    bool moves;
    if (index == 0) {
      moves = make_probabilities(first, max, factor);
    } else {
      // A copy of its own, since products are under way.
      add_other(second, accumulate);
      accumulate = 1;
      moves = make_probabilities(second, max, factor);
      ptx::wgmma_wait_group<0>();
      release(0, second);
    }
    if (moves) RegistersOf<C>::rescale(factor);
    issue_own<C>(values(index, index), accumulate);
    // The slot goes back before the other's P is waited for: what is loaded there takes longest.
    ptx::wgmma_wait_group<0>();
    release(index, index);
    if (index == 1) return;
    add_other(first, 1);
    ptx::wgmma_wait_group<0>();
    release(1, first);
  }

  // The same, by one copy of the code: products begin when P of the own block is there.
  __device__ __forceinline__ void add_in_turn(const float (&max)[2], int accumulate) {
    float factor[2], of_own[2];
    bool moves = index == 1 && take_references(1, factor);
    bool moves_own = make_probabilities(index, max, of_own);
#pragma unroll 1
    for (int block = 0; block < 2; ++block) {
      if (block == index) {
        moves = moves_own;
        factor[0] = of_own[0];
        factor[1] = of_own[1];
      } else if (block == 1) {
        moves = take_references(0, factor);
      }
      if (moves) RegistersOf<C>::rescale(factor);
      if (block == index) {
        issue_own<C>(values(block, index), accumulate);
      } else {
        issue_other<C>(p_of(block), values(block, index), accumulate);
      }
      accumulate = 1;
      ptx::wgmma_wait_group<0>();
      release(block, index);
    }
  }

  // A pair of blocks.
  __device__ __forceinline__ void multiply(int pair, bool is_last, int accumulate) {
    const int first_key = pair * kPairKeys + index * kBlockKeys;
    compute_scores(first_key, is_last);
    // For both in one place, before the second warpgroup waits for P, as it has to anyway.
    fix_up(first_key, index);
    float max[2];
    RegistersOf<C>::find_maxima(max);
    max[0] *= scale.folded;
    max[1] *= scale.folded;
    if constexpr (is_dealt(C) && gathers(C)) {
      add_in_turn(max, accumulate);
    } else {
      add_beside(max, accumulate);
    }
  }

  // What the sink of a row's head adds to its sum.
  __device__ __forceinline__ float sink_of(int r) const {
    if constexpr (!has_sink(C.facts)) return 0.0f;
    const int head = first_row + row_of_end() + 8 * r;
    if (p.sink == nullptr || head >= rows_of_sequence<C>(p)) return 0.0f;
    return attention::sink_share(p.sink[head], rows.subtrahend(r));
  }

  // The rows' sums over both warpgroups' blocks, and what O is multiplied with.
  __device__ __forceinline__ void finish_rows(const Part& part, float (&factor)[2]) {
    const unsigned own = smem + kLayout.sums.offset + (index * kRows + row()) * 4;
    const unsigned other = smem + kLayout.sums.offset + ((1 - index) * kRows + row()) * 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.sum[r] = fmha::sum_of_quad(rows.sum[r]);
      if (threadIdx.x % 4 == 0) ptx::st_shared_f32(own + 32 * r, rows.sum[r]);
    }
    if constexpr (joins_tails(C)) {
      if (index == 0 && thread() == 0 && is_head(part))
        ptx::st_shared_u32(smem + kLayout.tail.offset, ask_for_tail<C>(p) ? 1 : 0);
    }
    ptx::barrier_sync(kBarrierOfConsumers, kConsumers * kWarpgroupThreads);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // In the same order in both, so that both have the same bits.
      const float theirs = ptx::ld_shared_f32(other + 32 * r);
      rows.sum[r] = index == 0 ? rows.sum[r] + theirs : theirs + rows.sum[r];
      const float whole = rows.sum[r] + sink_of(r);
      factor[r] = part.slot >= 0 ? 1.0f : whole == 0.0f ? 0.0f : 1.0f / whole;
    }
  }

  // A part that begins its sequence, or ends it.
  __device__ __forceinline__ static bool is_head(const Part& part) { return part.slot >= 0 && part.begin == 0; }
  __device__ __forceinline__ static bool is_tail(const Part& part) { return part.slot >= 0 && part.begin > 0; }

  // A part that begins its sequence, if the rest is there: O of the whole.
  __device__ __forceinline__ bool join(const Part& part) {
    if (!is_head(part) || ptx::ld_shared_u32(smem + kLayout.tail.offset) == 0) return false;
    stage_rows<C>(slot(0), index * (kHeadDimV / 2), row());
    if (index == 0 && threadIdx.x % 4 == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        ptx::st_shared_f32(references(0) + 32 * r, rows.reference[r]);
        ptx::st_shared_f32(references(1) + 32 * r, rows.sum[r]);
      }
    }
    ptx::barrier_sync(kBarrierOfConsumers, kConsumers * kWarpgroupThreads);
    add_tail<C>(p, part.sequence, first_row, slot(0), smem + kLayout.references.offset);
    return true;
  }

  __device__ __forceinline__ void run() {
    unsigned q_parity = 0;
    Part part;
#pragma unroll 1
    for (; walk.next(part); q_parity ^= 1) {
      keys = keys_of<C>(p, part.sequence);
      rows = {};
      int accumulate = 0;
      ptx::mbarrier_wait_parity(barrier_at<kBarriers.q_full>(smem), q_parity);
      int pair = part.begin;
#pragma unroll 1
      do {  // of a part with a pair at least
        const bool is_last = pair + 1 == part.end;
        multiply(pair, is_last, accumulate);
        accumulate = 1;
        parity ^= 1;
      } while (++pair < part.end);
      float factor[2];
      finish_rows(part, factor);
      if constexpr (joins_tails(C)) {
        if (join(part)) return;  // which is the last part
      }
      RegistersOf<C>::rescale(factor);
      if (index == 0) store_statistics<C>(p, part, rows, first_row, row_of_end());
      store_output<C>(p, part, index * (kHeadDimV / 2), first_row, row_of_end());
      if constexpr (joins_tails(C)) {
        if (is_tail(part)) {
          ptx::barrier_sync(kBarrierOfConsumers, kConsumers * kWarpgroupThreads);
          if (index == 0 && thread() == 0) tell_tail(p, part.end == pairs_of<C>(p, part.sequence));
        }
      }
    }
  }
};

}  // namespace tessera::fmha_latent
