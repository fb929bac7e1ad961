// The consumer warpgroups over 8-bit keys: the same 64 rows, one half of O's columns each, both products transposed.
//
//   S^T = K Q^T     64 keys x 64 rows      A is K, from registers; B is Q, K-major
//   O^T += V^T P^T  256 columns x 64 rows  A is V^T, from registers; B is P^T, which lies [key][row], MN-major
//
// A of wgmma may come from registers, so that bytes of a slot are widened on the way to it. What is wide is never
// written to shared memory, which both products are bound by: a block costs its bytes in and its bytes out, twice.
//
// Who has which keys and columns is free, as both operands of a product agree on it:
// - S: a lane has 16 columns of a panel side by side, of the rows of A that are its own. Columns of Q are put into the
//   order which that makes (RowsOfQ), once a part.
// - O: of a warp's panel a lane has eight columns side by side, two for each tile of 64: they leave as 16 bytes. It
//   reads them of two keys that are neighbours along k, exchanges bytes, and has pairs along k.
// Both are products of f16, which e4m3 becomes in one instruction for two; P is at most 2^8, and RowsOfQ says how Q is.
//
// Panels of 64 bytes come with the 64B swizzle. A row of a panel is half a line of banks: for S, lanes that are served
// at once read two rows whole; for O, a quarter of a line of four keys, odd lanes the second of their two first.
//
// Scores, O^T and what is widened are registers by name (registers.cuh).
//
// Pairs of blocks, and references that go from block to block, are as in consumer.cuh. A row's keys lie in all lanes
// and warps, so references lie in shared memory, with the score beyond which a block moves them (its limit). Whoever
// has P has all that came before: the one who makes the next block's P. P has a place for each parity of pairs: when it
// is written again, the other warpgroup has handed over a P that came behind its products with the one before.
#pragma once

#include "fmha/softmax.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/registers.cuh"
#include "fmha_latent/rows_of_q.cuh"
#include "fmha_latent/transposed_epilogue.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha_latent.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha_latent {

// Of a sequence's keys, and of its values, which are a part of them.
template <Config C>
__device__ __forceinline__ float descale_of(const Params& p, int sequence) {
  if (p.k_descale == nullptr) return 1.0f;
  return __uint_as_float(ptx::ld_global_u32(p.k_descale + sequence * p.k_descale_stride_batch));
}

// One copy of the code for both warpgroups and for the values of both blocks: with one for each NVRTC took twice as
// long.
template <Config C>
struct TransposedConsumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  using Sums = float[2];  // of the rows of own_group()

  const Params& p;
  const unsigned smem;
  const int index;  // which warpgroup, and which block of a pair is its own
  fmha::Scale scale{p.softmax_scale};
  Walk<C> walk{p};
  unsigned pairs = 0;  // all so far, this one too
  int slot = 0;        // of the pair's first block
  unsigned phase = 0;  // of that slot
  int keys = 0;        // of the part's sequence
  const int first_row = walk.tile() * C.tile_m;

  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x) % kWarpgroupThreads; }
  __device__ __forceinline__ static int warp() { return thread() / 32; }
  __device__ __forceinline__ static int octet() { return thread() % 32 / 4; }  // g of a fragment
  __device__ __forceinline__ static int own_group() { return octet() % kGroupsOfRows<C>; }
  __device__ __forceinline__ static int quad() { return thread() % 4; }  // t of it
  __device__ __forceinline__ void sync_warpgroup() const {
    ptx::barrier_sync(kBarrierOfWarpgroup + index, kWarpgroupThreads);
  }

  // Of pairs.
  __device__ __forceinline__ unsigned parity() const { return (pairs - 1) & 1; }
  // Of a block of the pair.
  __device__ __forceinline__ int slot_of(int block) const {
    return block == 0 ? slot : slot + 1 < slots(C) ? slot + 1 : 0;
  }
  __device__ __forceinline__ unsigned phase_of(int block) const {
    return phase ^ static_cast<unsigned>(block == 1 && slot + 1 == slots(C));
  }
  __device__ __forceinline__ unsigned keys_at(int block) const {
    return smem + kLayout.k.offset + slot_of(block) * slot_bytes(C);
  }
  __device__ __forceinline__ unsigned p_of(int block) const {
    return smem + kLayout.p.offset + (2 * parity() + block) * p_bytes(C);
  }
  __device__ __forceinline__ void wait_for_panel(int block, int panel) const {
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.k_full>(smem, slot_of(block) * kPanels + panel), phase_of(block));
  }

  __device__ __forceinline__ unsigned limits() const { return smem + kLayout.references.offset; }
  __device__ __forceinline__ unsigned subtrahends() const { return limits() + kRows * 4; }
  __device__ __forceinline__ unsigned scales() const { return limits() + 2 * kRows * 4; }
  __device__ __forceinline__ unsigned factors(int block) const {
    return smem + kLayout.factors.offset + (2 * parity() + block) * kRows * 4;
  }
  __device__ __forceinline__ unsigned moved(int block) const {
    return smem + kLayout.marks.offset + (2 * parity() + block) * 4;
  }
  __device__ __forceinline__ unsigned asked() const { return smem + kLayout.marks.offset + (4 + index) * 4; }
  __device__ __forceinline__ static unsigned of_warp(unsigned region, int warpgroup, int warp) {
    return region + (warpgroup * kWarpsOfConsumer + warp) * kRows * 4;
  }
  // Two rows of a thread, of a group.
  __device__ __forceinline__ static void load_two(unsigned from, int group, float (&two)[2]) {
    unsigned low, high;
    ptx::ld_shared_v2(from + (8 * group + 2 * quad()) * 4, low, high);
    two[0] = __uint_as_float(low);
    two[1] = __uint_as_float(high);
  }

  __device__ __forceinline__ float reference_of(int row) const {
    const bool is_blank = ptx::ld_shared_f32(limits() + row * 4) == ptx::minus_infinity();
    return is_blank ? ptx::minus_infinity() : ptx::ld_shared_f32(subtrahends() + row * 4);
  }
  // This warpgroup reads its half of a slot no more.
  __device__ __forceinline__ void release(int block) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      ptx::mbarrier_arrive(barrier_at<kBarriers.k_empty>(smem, slot_of(block) * kConsumers + index));
  }

  // The end of the keys that a row sees.
  __device__ __forceinline__ int visible_end(int own_row) const {
    if constexpr (C.facts.mask == Mask::none) return keys;
    return min(keys, (first_row + own_row) / C.pack_gqa + 1 + keys - p.seqlen_q);
  }

  // What lies in a block behind the last key is nobody's, and 0 times a NaN is one.
  __device__ __forceinline__ void clear_behind(int first_key) const {
    if constexpr (C.facts.seqused == UsedLengths::none) return;
    const int valid = keys - first_key;
    if (valid <= 0 || valid >= kBlockKeys) return;
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) wait_for_panel(index, panel);
#pragma unroll 1
    for (int i = thread(); i < (kBlockKeys - valid) * kPanels * 4; i += kWarpgroupThreads) {
      const int chunk = i % 4, behind = i / 4 / kPanels, panel = i / 4 % kPanels;
      ptx::st_shared_v4(keys_at(index) + panel * kRawPanelBytes + (valid + behind) * kRawSpanBytes + 16 * chunk,
                        {0, 0, 0, 0});
    }
    ptx::fence_proxy_async_shared();
    sync_warpgroup();
  }

  // Of the own block, a panel at a time: while wgmma multiplies one half, the other is widened.
  __device__ __forceinline__ void compute_scores(int first_key, bool is_last) {
    clear_behind(first_key);
    const unsigned from = keys_at(index) + (warp() * 16 + octet()) * kRawSpanBytes +
                          ((static_cast<unsigned>(quad()) ^ (octet() / 2 % 4)) * 16);
    const unsigned q_low = static_cast<unsigned>(k_major_descriptor(smem + kLayout.q.offset, C.tile_m, C.swizzle));
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      wait_for_panel(index, panel);
      if (panel == 0) {
        RegistersOf<C>::begin_scores(from, q_low);
      } else {
        RegistersOf<C>::add_scores(from + panel * kRawPanelBytes, q_low + panel * (q_panel_bytes(C) >> 4));
      }
    }
    ptx::wgmma_wait_group<0>();
    if (is_last && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.q_empty>(smem));
  }

  // The rare cases: a scale that cannot be folded, a block with keys that some row does not see.
  __device__ __forceinline__ void fix_up(int first_key) const {
    if (!scale.is_applied() && first_key + kBlockKeys <= visible_end(0)) return;
    // What follows from this is rare, and not worth registers from block to block.
    const int lane = ptx::forget(static_cast<int>(threadIdx.x) % 32);
    const int key = first_key + warp() * 16 + lane / 4;
    int ends[C.facts.mask == Mask::none ? 1 : C.tile_m / 4];
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(ends) / sizeof(ends[0])); ++i)
      ends[i] = visible_end(8 * (i / 2) + 2 * (lane % 4) + i % 2) - key;
    RegistersOf<C>::hide_behind(scale.factor(), ends);
  }

  // Sums, and O, follow references that a block moved. No product is under way.
  __device__ __forceinline__ void rescale_sums(int block, Sums& sums) const {
    float factor[2];
    load_two(factors(block), own_group(), factor);
    sums[0] *= factor[0];
    sums[1] *= factor[1];
  }
  // The place of this thread's rows in a region of rows at the beginning of shared memory.
  __device__ __forceinline__ unsigned of_quad() const { return smem + 2 * quad() * 4; }
  __device__ __forceinline__ void rescale_output(int block) const {
    RegistersOf<C>::rescale(of_quad() + (2 * parity() + block) * kRows * 4);
  }

  // References become the rows' maxima. All warps of the warpgroup.
  __device__ __forceinline__ void move_references() const {
    const unsigned maxima = smem + kLayout.maxima.offset;
    float max[2];
    RegistersOf<C>::find_maxima(max, octet(), of_quad());
    if (octet() < kGroupsOfRows<C>)
      ptx::st_shared_v2(of_warp(maxima, index, warp()) + (8 * octet() + 2 * quad()) * 4, __float_as_uint(max[0]),
                        __float_as_uint(max[1]));
    sync_warpgroup();
    if (thread() < C.tile_m) {
      const unsigned own = thread() * 4;
      const float before = reference_of(thread());
      float after = before;
#pragma unroll
      for (int i = 0; i < kWarpsOfConsumer; ++i)
        after = fmaxf(after, ptx::ld_shared_f32(of_warp(maxima, index, i) + own));
      const float subtrahend = after == ptx::minus_infinity() ? 0.0f : after;
      ptx::st_shared_f32(factors(index) + own, ptx::ex2(before - subtrahend));
      ptx::st_shared_f32(limits() + own, (after + fmha::kSlack) / ptx::ld_shared_f32(scales() + own));
      ptx::st_shared_f32(subtrahends() + own, subtrahend);
    }
    sync_warpgroup();
  }

  // Scores to P, for this warpgroup and the other one.
  __device__ __forceinline__ void make_probabilities(int first_key, Sums& sums) const {
    fix_up(first_key);
    unsigned is_exceeded;
    RegistersOf<C>::find_exceeded(is_exceeded, of_quad());
    const bool asks = __any_sync(0xffffffff, is_exceeded != 0);
    if (asks && threadIdx.x % 32 == 0) ptx::st_shared_u32(asked(), pairs);
    sync_warpgroup();
    const bool moves = ptx::ld_shared_u32(asked()) == pairs;
    if (moves) {
      move_references();
      rescale_sums(index, sums);
    }
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int key_of_lane = warp() * 16 + lane / 8 % 2 * 8 + lane % 8;
    const unsigned address =
        swizzle_address(p_swizzle(C), p_of(index) + static_cast<unsigned>(key_of_lane * 2 * C.tile_m + lane / 16 * 16));
    RegistersOf<C>::exponentiate(of_quad(), address);
    if (thread() == 0) ptx::st_shared_u32(moved(index), static_cast<unsigned>(moves));
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.p_full>(smem, index));
  }

  // Waits for a block's P. True: references moved, O takes the factors, and sums that the block is not in yet.
  __device__ __forceinline__ bool is_moved(int block) const {
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.p_full>(smem, block), parity());
    return ptx::ld_shared_u32(moved(block)) != 0;
  }

  // O^T += V^T P^T of a block, whose P is there. Beside the first one's products the own block's sums are added up:
  // before P was handed over they held up the other warpgroup.
  __device__ __forceinline__ void add_values(int block, Sums& sums, int accumulate) const {
    const int panel = index * kPanelsOfHalf + warp();
    wait_for_panel(block, panel);
    const unsigned t = static_cast<unsigned>(quad()), g = static_cast<unsigned>(octet());
    const unsigned first = keys_at(block) + panel * kRawPanelBytes + 2 * t * kRawSpanBytes + (g / 2 ^ t) * 16 +
                           g % 2 * 8 + t % 2 * kRawSpanBytes;
    // Bytes of both keys, that with the lower k first.
    const unsigned low_half = t % 2 == 0 ? 0x5140u : 0x1504u, high_half = t % 2 == 0 ? 0x7362u : 0x3726u;
    RegistersOf<C>::add_values(first, first ^ kRawSpanBytes, low_half, high_half,
                               static_cast<unsigned>(mn_major_descriptor(p_of(block), kBlockKeys, p_swizzle(C))),
                               accumulate);
    release(block);  // A of the last products was made of what was read, so that no load is under way
    if (block == 0) RegistersOf<C>::add_sums(sums, octet());
    ptx::wgmma_wait_group<0>();
  }

  // A block of a pair, scores with the first. Sums follow references that the first one's block moved before the second
  // warpgroup's own block is summed.
  __device__ __forceinline__ void multiply(int pair, int block, bool is_last, Sums& sums, int accumulate) {
    bool moves = false;
    if (block == 0) {
      const int first_key = pair * kPairKeys + index * kBlockKeys;
      compute_scores(first_key, is_last);
      if (index == 1) {
        moves = is_moved(0);
        if (moves) rescale_sums(0, sums);
      }
      make_probabilities(first_key, sums);
    }
    if (index == 0 || block == 1) {
      moves = is_moved(block);
      if (moves && block != index) rescale_sums(block, sums);
    }
    if (moves) rescale_output(block);
    add_values(block, sums, accumulate);
  }
  // The rows' sums over both warpgroups' keys; what O is multiplied with comes to factors(index). A thread has a row.
  __device__ __forceinline__ void finish_rows(const Part& part, const Sums& sums) const {
    const unsigned region = smem + kLayout.sums.offset;
    // Places that follow from these are not worth registers from part to part.
    const int row = ptx::forget(thread()), lane = row % 32;
    if (lane / 4 < kGroupsOfRows<C>)
      ptx::st_shared_v2(of_warp(region, index, row / 32) + (lane / 4 * 8 + lane % 4 * 2) * 4, __float_as_uint(sums[0]),
                        __float_as_uint(sums[1]));
    ptx::barrier_sync(kBarrierOfConsumers, kConsumers * kWarpgroupThreads);
    if (row < C.tile_m) {
      float sum = 0.0f;  // in the same order in both
#pragma unroll
      for (int i = 0; i < kConsumers * kWarpsOfConsumer; ++i)
        sum += ptx::ld_shared_f32(of_warp(region, 0, i) + row * 4);
      const float factor = part.slot >= 0 ? 1.0f : sum == 0.0f ? 0.0f : 1.0f / sum;
      ptx::st_shared_f32(factors(index) + row * 4, factor * descale_of<C>(p, part.sequence));
      if (index == 0) store_statistic<C>(p, part, first_row, row, reference_of(row), sum);
    }
    sync_warpgroup();
  }

  __device__ __forceinline__ void run() {
    unsigned q_parity = 0;
    Part part;
#pragma unroll 1
    for (; walk.next(part); q_parity ^= 1) {
      keys = keys_of<C>(p, part.sequence);
      scale = fmha::Scale{p.softmax_scale * descale_of<C>(p, part.sequence)};
      ptx::mbarrier_wait_parity(barrier_at<kBarriers.q_full>(smem), q_parity);
      RowsOfQ<C>{smem + kLayout.q.offset, smem + kLayout.p.offset, scales(),
                 ptx::forget(index * kWarpgroupThreads + thread())}
          .prepare(scale.folded);
      if (index == 0 && thread() < C.tile_m) {
        ptx::st_shared_f32(limits() + thread() * 4, ptx::minus_infinity());
        ptx::st_shared_f32(subtrahends() + thread() * 4, 0.0f);
      }
      if (thread() == 0) ptx::st_shared_u32(asked(), 0);
      ptx::fence_proxy_async_shared();
      ptx::barrier_sync(kBarrierOfConsumers, kConsumers * kWarpgroupThreads);
      Sums sums{};
      int step = 2 * part.begin;  // a block
#pragma unroll 1
      do {  // of a part with a pair at least
        const int block = step % 2;
        if (block == 0) ++pairs;
        multiply(step / 2, block, step / 2 + 1 == part.end, sums, step > 2 * part.begin ? 1 : 0);
        if (block == 0) continue;
        phase = phase_of(1) ^ static_cast<unsigned>(slot_of(1) + 1 == slots(C));
        slot = slot + 2 < slots(C) ? slot + 2 : slot + 2 - slots(C);
      } while (++step < 2 * part.end);
      finish_rows(part, sums);
      rescale_output(index);
      store_transposed<C>(p, part, index * (kHeadDimV / 2) + warp() * kSpanElements, first_row);
    }
  }
};

}  // namespace tessera::fmha_latent
