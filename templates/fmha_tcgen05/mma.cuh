// The issuing warp: one thread gives the tensor core all products, S = Q K^T and O += P V. In a pair it is one thread
// of the even CTA.
//
// Products are executed in the order in which one thread issues them. So a Q tile's next S may overwrite its P right
// behind the product that reads it, and a commit behind any product means that all before are complete.
//
// Two Q tiles alternate: O of the first, its next S, O of the second, its next S; while one's softmax works, the tensor
// core has the other's products. With three buffers S is three steps ahead of O, counting those of both Q tiles: behind
// O of a step comes S of the next step of its buffer. A single Q tile issues its next S into the other buffer first,
// then O of this step.
#pragma once

#include "fmha/ring.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/pairs.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/fmha_tcgen05.h"
#include "spec/matrix_descriptor.h"
#include "tessera/spec/instruction_descriptor.h"

namespace tessera::fmha_tcgen05 {

using fmha::RingPosition;

template <Config C>
inline constexpr auto kKind = is_8_bit(C.facts) ? layout::Tcgen05Kind::f8f6f4 : layout::Tcgen05Kind::f16;
// wgmma's layout codes stand where tcgen05 has them; beside them tcgen05 wants a version.
inline constexpr unsigned long long kDescriptorVersion = 1ull << 46;

// With three buffers of S both softmax warpgroups are busy all the time, and what the issuer executes is taken from the
// two warps on its sub-core: descriptors are words there, whose high one is a constant.
template <Config C>
__device__ __forceinline__ unsigned long long further(unsigned long long descriptor, int bytes) {
  if constexpr (!has_third_buffer(C)) return advance_descriptor(descriptor, bytes);
  const unsigned low = static_cast<unsigned>(descriptor) + static_cast<unsigned>(bytes >> 4);
  return ptx::pack_words(low, static_cast<unsigned>(descriptor >> 32));
}
// Of what lies `bytes` behind `first`. `make`: a descriptor without its version, from a start.
template <Config C, class Make>
__device__ __forceinline__ unsigned long long descriptor_of(unsigned first, int bytes, const Make& make) {
  if constexpr (!has_third_buffer(C)) return kDescriptorVersion | make(first + bytes);
  return further<C>(kDescriptorVersion | make(first), bytes);
}

template <Config C>
TESSERA_HD constexpr unsigned instruction(DType dtype, int n, bool is_b_mn_major) {
  const auto type = dtype == DType::e4m3   ? layout::Tcgen05Type::e4m3
                    : dtype == DType::bf16 ? layout::Tcgen05Type::bf16
                                           : layout::Tcgen05Type::f16;
  return layout::encode_instruction_descriptor(
      kKind<C>, {.a = type, .b = type, .m = rows_per_product(C), .n = n, .is_b_mn_major = is_b_mn_major});
}

template <Config C>
struct Issuer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kCtas = ctas_per_tile(C);

  const Params& p;
  const unsigned smem;
  const unsigned tmem;
  RingPosition<C.stages> k_ring{};
  RingPosition<C.stages> v_ring{};
  BufferPosition<C> position{};  // of the steps whose O is issued

  // An arrival when all that was issued is complete, in every CTA of the tile.
  __device__ __forceinline__ void commit(unsigned barrier) const {
    if constexpr (C.cta_pair) {
      ptx::tcgen05_commit_multicast<2>(barrier, 3);
    } else {
      ptx::tcgen05_commit<1>(barrier);
    }
  }
  // Behind a load nothing of Tensor Memory has to be ordered; behind the other warps' arrivals, their loads and stores.
  __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) const {
    if constexpr (C.cta_pair) {
      ptx::mbarrier_wait_parity_acquire_cluster(barrier, parity);
    } else {
      ptx::mbarrier_wait_parity(barrier, parity);
    }
  }

  // `slot`: of the step's barriers.
  __device__ __forceinline__ void issue_scores(int q_tile, int buffer, int slot) const {
    constexpr int kProducts = products_of_lanes(C), kKeys = C.tile_n / kProducts;
    constexpr unsigned kInstruction = instruction<C>(C.facts.dtype, kKeys, false);
    const unsigned long long a =
        descriptor_of<C>(smem + kLayout.q.offset, q_tile * q_slot_bytes(C),
                         [](unsigned start) { return k_major_descriptor(start, rows_per_cta(C), C.swizzle); });
    const unsigned long long of_slot =
        descriptor_of<C>(smem + kLayout.k.offset, k_ring.slot() * k_slot_bytes(C),
                         [](unsigned start) { return k_major_descriptor(start, k_rows(C), C.swizzle); });
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      const unsigned long long b = further<C>(of_slot, product * kKeys * swizzle_span_bytes(C.swizzle));
      const unsigned d = tmem + s_column(C, 0) + buffer * s_columns(C) + lane_offset(16 * product);
      // Pools leave the control warps no registers for all descriptors of head_dim 512 at a time.
#pragma unroll(has_pools(C.facts) || is_latent(C) ? 8 : qk_columns(C) / step_elements(C))
      for (int step = 0; step < qk_columns(C) / step_elements(C); ++step) {
        ptx::tcgen05_mma<kKind<C>, kCtas>(d, further<C>(a, k_major_step_bytes(step, rows_per_cta(C), C.swizzle)),
                                          further<C>(b, k_major_step_bytes(step, k_rows(C), C.swizzle)), kInstruction,
                                          step > 0);
      }
    }
    commit(barrier_at<kBarriers.s_full>(smem, slot));
  }

  // O += P V for the keys [kFirst, kEnd) of a step. `accumulate`: whether O holds something of its tile.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void issue_output(int q_tile, int buffer, bool accumulate) const {
    constexpr int kKeys = step_elements(C);
    constexpr bool kIsMnMajor = C.facts.v_layout == Layout::mn_major;
    constexpr unsigned kInstruction = instruction<C>(p_dtype(C), pv_columns(C), kIsMnMajor);
    const unsigned v_slots = smem + (is_latent(C) ? kLayout.k : kLayout.v).offset;
    const int v_slot = v_ring.slot() * (is_latent(C) ? k_slot_bytes(C) : v_slot_bytes(C));
    const unsigned p_in_tmem = tmem + buffer * s_columns(C) + p_offset(C);
    const unsigned long long p_in_smem =
        kDescriptorVersion |
        k_major_descriptor(smem + kLayout.p.offset + q_tile * p_slot_bytes(C), rows_per_cta(C), p_swizzle(C));
#pragma unroll
    for (int product = 0; product < pv_products(C); ++product) {
      const unsigned long long b = descriptor_of<C>(v_slots, v_slot + product * v_part_bytes(C), [](unsigned start) {
        return kIsMnMajor ? mn_major_descriptor(start, C.tile_n, C.swizzle)
                          : k_major_descriptor(start, v_columns(C), C.swizzle);
      });
      const unsigned d = tmem + o_column(C, 0) + q_tile * o_columns(C) +
                         (is_latent(C) ? lane_offset(16 * product) : product * (pv_columns(C) / folds(C)));
#pragma unroll
      for (int step = kFirst / kKeys; step < kEnd / kKeys; ++step) {
        const int bytes = kIsMnMajor ? mn_major_step_bytes(kKeys / 16 * step, C.swizzle)
                                     : k_major_step_bytes(step, v_columns(C), C.swizzle);
        const unsigned long long b_step = further<C>(b, bytes);
        if constexpr (C.p_path == ProbabilityPath::tmem) {
          ptx::tcgen05_mma_from_tmem<kKind<C>, kCtas>(d, p_in_tmem + 8 * step, b_step, kInstruction,
                                                      step > 0 || accumulate);
        } else {
          ptx::tcgen05_mma<kKind<C>, kCtas>(
              d, further<C>(p_in_smem, k_major_step_bytes(step, rows_per_cta(C), p_swizzle(C))), b_step, kInstruction,
              step > 0 || accumulate);
        }
      }
    }
  }

  __device__ __forceinline__ void wait_k() const {
    wait(barrier_at<kBarriers.k_full>(smem, k_ring.slot()), k_ring.parity());
  }
  // Keys that are values too are still needed.
  __device__ __forceinline__ void release_k() {
    if constexpr (!is_latent(C)) commit(barrier_at<kBarriers.k_empty>(smem, k_ring.slot()));
    k_ring.advance();
  }
  __device__ __forceinline__ void wait_v() const {
    if constexpr (!is_latent(C)) wait(barrier_at<kBarriers.v_full>(smem, v_ring.slot()), v_ring.parity());
  }
  __device__ __forceinline__ void release_v() {
    commit(barrier_at < is_latent(C) ? kBarriers.k_empty : kBarriers.v_empty > (smem, v_ring.slot()));
    v_ring.advance();
  }

  // O of one step: once its V and its P are there, part by part, and O has been rescaled.
  __device__ __forceinline__ void step_output(int q_tile, bool is_first) {
    constexpr int kFirstKeys = p_first_keys(C);
    const int buffer = position.buffer(q_tile), slot = position.slot(q_tile);
    wait(barrier_at<kBarriers.p_full>(smem, slot), position.parity(slot));
    ptx::tcgen05_fence_after_thread_sync();
    issue_output<0, kFirstKeys>(q_tile, buffer, !is_first);
    if constexpr (has_p_parts(C)) {
      wait(barrier_at<kBarriers.p_rest>(smem, slot), position.parity(slot));
      ptx::tcgen05_fence_after_thread_sync();
      issue_output<kFirstKeys, C.tile_n>(q_tile, buffer, true);
    }
    commit(barrier_at<kBarriers.o_done>(smem, q_tile));
    position.advance(slot);
  }

  // The next step of two Q tiles: `issue(block, q_tile)`, between `begin` and `end` of its block.
  struct StepWalk {
    const Blocks all, first, second;
    int block = all.end - 1;
    int q_tile = 0;

    __device__ __forceinline__ bool has_more() const { return block >= all.begin; }
    __device__ __forceinline__ int own_begin() const { return q_tile == 0 ? first.begin : second.begin; }
    __device__ __forceinline__ int own_end() const { return q_tile == 0 ? first.end : second.end; }
    template <class Begin, class Issue, class End>
    __device__ __forceinline__ void advance(const Begin& begin, const Issue& issue, const End& end) {
      bool is_step = false;
#pragma unroll 1
      while (!is_step && has_more()) {
        if (q_tile == 0) begin();
        is_step = own_begin() <= block && block < own_end();
        if (is_step) issue(block, q_tile);
        if (q_tile == 0 && second.has(block)) {
          q_tile = 1;
        } else {
          end();
          q_tile = 0;
          --block;
        }
      }
    }
  };

  // With three buffers of S.
  __device__ __forceinline__ void run_steps_ahead(const Blocks& all, const Blocks& first, const Blocks& second) {
    StepWalk scores{all, first, second}, outputs{all, first, second};
    BufferPosition<C> ahead = position;  // of the next scores
    const auto next_scores = [&] {
      scores.advance([&] { wait_k(); },
                     [&](int, int q_tile) {
                       issue_scores(q_tile, ahead.buffer(q_tile), ahead.slot(q_tile));
                       ahead.pass();
                     },
                     [&] { release_k(); });
    };
#pragma unroll 1
    for (int i = 0; i < s_buffers(C); ++i) next_scores();
    // Blocks from the first one on that both Q tiles have to the last one.
    const bool ends_together = first.begin == second.begin;
    const int even_end = ends_together ? min(first.end, second.end) : all.begin;
#pragma unroll 1
    while (outputs.has_more()) {
      if (outputs.q_tile == 0 && outputs.block < even_end) {
        run_even_blocks(outputs.block, all.begin, first.end, second.end);
        return;
      }
      outputs.advance([&] { wait_v(); },
                      [&](int block, int q_tile) { step_output(q_tile, block + 1 == outputs.own_end()); },
                      [&] { release_v(); });
      next_scores();
    }
  }

  // O of all blocks from `block` down to `begin`, which both Q tiles have, and the scores that are not issued yet:
  // those of the next block's second Q tile, and of the first one from the block after it on. A step's buffer is that
  // of the scores behind it. What is known of the walk here need not be found out in each step.
  __device__ __forceinline__ void run_even_blocks(int block, int begin, int first_end, int second_end) {
#pragma unroll 1
    for (; block >= begin; --block) {
      wait_v();
      int turn = position.turn;
      step_output(0, block + 1 == first_end);
      if (block > begin) {
        issue_scores(1, turn, 3 + turn);
        release_k();
      }
      turn = position.turn;
      step_output(1, block + 1 == second_end);
      release_v();
      if (block > begin + 1) {
        wait_k();
        issue_scores(0, turn, turn);
      }
    }
  }

  __device__ __forceinline__ void run_tile(const TileIndex& tile, unsigned q_parity) {
    constexpr int kTiles = q_tiles(C);
    const KeyBlocks<C> keys(p, tile);
    const Blocks all = keys.of_tile();
    const Blocks first = keys.of_q_tile(0);
    const Blocks second = kTiles == 2 ? keys.of_q_tile(1) : first;
#pragma unroll 1
    for (int t = 0; t < kTiles; ++t) wait(barrier_at<kBarriers.q_full>(smem, t), q_parity);
    if constexpr (has_third_buffer(C)) {
      run_steps_ahead(all, first, second);
      return;
    }
    // Block `block`'s scores and the O of the block after it, whose scores came in the round before.
#pragma unroll 1
    for (int block = all.end - 1; block >= all.begin - 1; --block) {
      const bool has_scores = block >= all.begin;
      const bool has_output = block + 1 < all.end;
      if (has_scores) wait_k();
      if (has_output) wait_v();
#pragma unroll 1
      for (int t = 0; t < kTiles; ++t) {
        const Blocks own = t == 0 ? first : second;
        if (kTiles == 1 && has_scores) {
          const int turn = has_output ? position.turn ^ 1 : position.turn;
          issue_scores(t, turn, turn);
        }
        if (has_output && own.has(block + 1)) step_output(t, block + 2 == own.end);
        if (kTiles == 2 && has_scores && own.has(block)) issue_scores(t, t, t);
      }
      if (has_scores) release_k();
      if (has_output) release_v();
    }
  }
};

template <Config C>
__device__ __forceinline__ void issue_products(const Params& p, unsigned smem, unsigned tmem) {
  if (cta_of_tile<C>() != 0) return;
  const Schedule<C> schedule{p};
  Issuer<C> issuer{p, smem, tmem};
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    issuer.run_tile(schedule.at(round), static_cast<unsigned>(round) & 1);
  }
}

}  // namespace tessera::fmha_tcgen05
