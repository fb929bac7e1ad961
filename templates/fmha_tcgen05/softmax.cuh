// A softmax warpgroup: one Q tile's S to P, one row to a thread.
//
// exp(scale (s - m)) is one FFMA and one ex2 on s, with the scale times log2(e) folded in. That needs a positive scale:
// then the largest s gives the largest exponent, and a masked -inf stays -inf. Other scales (negative, zero, so small
// that the product underflows, NaN) take the slow way: the scores are multiplied first, and the scale is 1 from there
// on.
//
// The reference m need not be the row's maximum, only near it: exponents stay below kSlack, and fp32 sums and 16-bit P
// lose nothing by a factor of 2^kSlack. So m moves only when some score exceeds it by more, which is rare after a row's
// first blocks. The factor by which O must follow, 1 if m stays, goes to the correction warps.
//
// The special-function unit is as busy as the tensor core at head_dim 128: 16 exponentials a cycle against 4,096
// multiply-adds. One exponential in four goes to the multiply-add units instead (spec/exponential.h), except where the
// unit is twice as fast, on sm_103. Scores are multiplied and added in pairs, and the order of instructions is that in
// which the unit never waits (store_probabilities).
//
// With three buffers of S the scores of both Q tiles are there, and a warp of each shares a sub-core. They exponentiate
// in turn: side by side either would wait for the special-function unit all the time, where now one loads its scores
// and finds their maxima while the other keeps the unit busy. Each sub-core has turns of its own.
//
// Where lanes are folded two threads share a row: they exchange their maxima in each step and their sums at the end.
#pragma once

#include "attention/altered_scores.cuh"
#include "attention/sink.cuh"
#include "attention/tree_mask.cuh"
#include "fmha_tcgen05/descales.cuh"
#include "fmha_tcgen05/exponential.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/float_pairs.cuh"
#include "ptx/math.cuh"
#include "ptx/max.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp_reduce.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kSmallestFoldedScale = 1e-30f;
inline constexpr float kSlack = 8.0f;  // in powers of two

// Named barriers: 0 is __syncthreads(); a softmax warpgroup among itself; a warp that waits for the exponentials of the
// other Q tile's on its sub-core.
inline constexpr int kBarrierOfSoftmax = 1;
inline constexpr int kBarrierOfTurns = 4;

struct Scale {
  float applied;  // factor on the scores before the exponential, if is_applied()
  float folded;   // factor inside the exponential, positive

  __device__ __forceinline__ explicit Scale(float softmax_scale) : applied(softmax_scale * kLog2E) {
    folded = is_applied() ? 1.0f : applied;
  }
  // Of scores that are altered first.
  struct Folded {
    float factor;
  };
  __device__ __forceinline__ explicit Scale(const Folded& whole) : applied(whole.factor), folded(whole.factor) {}
  __device__ __forceinline__ bool is_applied() const { return !(applied >= kSmallestFoldedScale); }
  __device__ __forceinline__ float factor() const { return is_applied() ? applied : 1.0f; }
};

template <Config C>
__device__ __forceinline__ Scale scale_of(const Params& p) {
  if constexpr (alters_scores(C.facts)) return Scale(Scale::Folded{attention::folded<C>(attention::altering_of<C>(p))});
  return Scale{p.softmax_scale};
}

// The row of tree_mask where a sequence's begin.
template <Config C>
__device__ __forceinline__ long long first_token(const Params& p, const TileIndex& tile) {
  if constexpr (is_ragged(C.facts)) return first_query<C>(p, tile.batch);
  return static_cast<long long>(tile.batch) * p.seqlen_q;
}

// One arrival of a warp at a barrier of this CTA, or of the CTA that issues the products.
__device__ __forceinline__ void arrive_of_warp(unsigned barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}
template <Config C>
__device__ __forceinline__ void arrive_at_issuer(unsigned barrier) {
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  if constexpr (C.cta_pair) {
    ptx::mbarrier_arrive_release_cluster(ptx::mapa(barrier, 0));
  } else {
    ptx::mbarrier_arrive(barrier);
  }
}

template <Config C>
struct Softmax {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kCount = s_columns(C);  // scores of a thread in a step
  static constexpr int kChunk = kCount < 32 ? kCount : 32;

  const Params& p;
  const unsigned smem;
  const unsigned tmem;  // of this warp's lanes
  const int q_tile;
  const int lane;  // of Tensor Memory
  Scale scale = scale_of<C>(p);
  float of_scores = 0;  // factor of a tile's scores, where keys have one of their own
  BufferPosition<C> position{};
  unsigned o_parity = 1;  // of the last O += P V: none yet
  int exchange = 0;       // slot of the last exchange between folded lanes
  float reference = 0;    // times log2(e); -inf: no key was visible yet
  float sum = 0;
  float slope = 0;               // of the row's head, times log2(e); where the Config has them
  int beside = 0;                // the key beside its query; likewise
  bool is_behind_other = false;  // a step comes behind one of the other Q tile
  bool is_before_other = false;  // and in front of one

  // What is subtracted from the exponents: 0 while no key is visible, so that -inf - -inf never appears.
  __device__ __forceinline__ float subtrahend() const { return reference == ptx::minus_infinity() ? 0.0f : reference; }
  __device__ __forceinline__ int barrier_of_turn(int of_q_tile) const {
    return kBarrierOfTurns + 2 * (lane / 32) + of_q_tile;
  }
  __device__ __forceinline__ int own_row() const { return row_of_lane(C, lane); }
  __device__ __forceinline__ unsigned half_slot(int which, int of_lane) const {
    return smem + kLayout.halves.offset + 4 * ((which * q_tiles(C) + q_tile) * 128 + of_lane);
  }
  // The same value of the other thread of this row. Two slots in turn: a slot is written again only after the next
  // barrier, which everybody reaches after reading.
  __device__ __forceinline__ float other_half(float mine) {
    if constexpr (is_latent(C)) return __shfl_xor_sync(0xffffffff, mine, 16);
    exchange ^= 1;
    ptx::st_shared_f32(half_slot(exchange, lane), mine);
    ptx::barrier_sync(kBarrierOfSoftmax + q_tile, kWarpgroupThreads);
    return ptx::ld_shared_f32(half_slot(exchange, lane ^ 64));
  }

  __device__ __forceinline__ void load_scores(float (&scores)[kCount], int buffer) const {
    unsigned bits[kCount / kChunk][kChunk];
#pragma unroll
    for (int i = 0; i < kCount / kChunk; ++i)
      ptx::tcgen05_ld_32x32b(bits[i], tmem + buffer * s_columns(C) + i * kChunk);
    ptx::tcgen05_wait_ld();
#pragma unroll
    for (int i = 0; i < kCount / kChunk; ++i) {
      ptx::hold(bits[i]);
#pragma unroll
      for (int j = 0; j < kChunk; ++j) scores[i * kChunk + j] = __uint_as_float(bits[i][j]);
    }
  }

  // Of a tile whose keys have a factor of their own.
  __device__ __forceinline__ void take_descale(const TileIndex& tile) {
    of_scores =
        p.softmax_scale * descale_of<C>(p, p.k_descale, p.k_descale_stride_batch, p.k_descale_stride_head, tile);
    if constexpr (is_8_bit(C.facts))
      of_scores *= descale_of<C>(p, p.q_descale, p.q_descale_stride_batch, p.q_descale_stride_head, tile);
    if constexpr (!alters_scores(C.facts)) scale = Scale(of_scores);
  }
  __device__ __forceinline__ attention::Altering altering_of_tile() const {
    if constexpr (has_descales(C.facts)) return attention::altering_of<C>(p, of_scores);
    return attention::altering_of<C>(p);
  }

  // `key`: of the first score.
  __device__ __forceinline__ void alter(float (&scores)[kCount], int key) const {
    const attention::Altering altering = altering_of_tile();
    const float distance = static_cast<float>(beside - key);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      scores[i] = attention::altered<C>(scores[i], altering, slope, distance - static_cast<float>(i));
  }

  // The rare cases: a scale that cannot be folded, keys that a row does not see. The warp asks before its scores are
  // there, so that they do not wait for the answer. `key`: of the first score.
  __device__ __forceinline__ int first_hidden(const Keys& visible, int key) const {
    return hides_first_keys(C.facts) ? visible.begin - key : 0;
  }
  __device__ __forceinline__ bool needs_fix_up(const Keys& visible, int key) const {
    return __any_sync(0xffffffff, scale.is_applied() || first_hidden(visible, key) > 0 || visible.end - key < kCount);
  }
  // The same, asked once for a tile: the first block, counted as they stand, from which on some row of the warp does
  // not see all keys. Where it pays: with three buffers of S the sub-cores' slots are short.
  static constexpr bool kKnowsRareBlocks =
      has_third_buffer(C) && C.facts.kv_layout == KvLayout::dense && !has_pools(C.facts) && !hides_first_keys(C.facts);
  // `origin`: the first block's first key.
  __device__ __forceinline__ int first_rare_block(const Keys& visible, int origin) const {
    const int keys = scale.is_applied() ? 0 : max(visible.end - origin, 0);
    return static_cast<int>(ptx::redux_min(static_cast<unsigned>(keys))) / C.tile_n;
  }
  __device__ __forceinline__ void fix_up(float (&scores)[kCount], const Keys& visible, int key) const {
    const int begin = first_hidden(visible, key), end = visible.end - key;
    const float factor = scale.factor();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool is_visible = (!hides_first_keys(C.facts) || i >= begin) && i < end;
      scores[i] = is_visible ? scores[i] * factor : ptx::minus_infinity();
    }
  }

  // Keys that the row's tree hides. `key`: of the first score.
  __device__ __forceinline__ void hide_by_tree(float (&scores)[kCount], const attention::TreeRow& tree,
                                               const Lengths& lengths, int key) const {
    if (key + kCount <= lengths.k - lengths.q) return;
#pragma unroll
    for (int group = 0; group < kCount; group += 32) {
      const unsigned bits = tree.visible(key + group);
#pragma unroll
      for (int i = group; i < kCount && i < group + 32; ++i)
        if ((bits >> (i - group) & 1) == 0) scores[i] = ptx::minus_infinity();
    }
  }

  // Likewise for listed keys: those of the list's places [place, place + kCount) that are none. All rows see the same.
  __device__ __forceinline__ void hide_missing(float (&scores)[kCount], const KeyBlocks<C>& keys, int place) const {
    unsigned present[kCount / 32];
    bool is_missing = false;
    if constexpr (is_latent(C)) {
      // The halves of a warp have the halves of the block's keys.
      static_assert(kCount == 32);
      const int part = part_of_lane(C, lane), begin = place - part * kCount + static_cast<int>(threadIdx.x) % 32;
      const unsigned first = __ballot_sync(0xffffffff, keys.has(begin));
      const unsigned second = __ballot_sync(0xffffffff, keys.has(begin + kCount));
      present[0] = part == 0 ? first : second;
      is_missing = (first & second) != 0xffffffff;
    } else {
#pragma unroll
      for (int i = 0; i < kCount / 32; ++i) {
        present[i] = __ballot_sync(0xffffffff, keys.has(place + 32 * i + static_cast<int>(threadIdx.x) % 32));
        is_missing = is_missing || present[i] != 0xffffffff;
      }
    }
    if (!scale.is_applied() && !is_missing) return;
    const float factor = scale.factor();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      scores[i] = present[i / 32] >> i % 32 & 1 ? scores[i] * factor : ptx::minus_infinity();
  }

  __device__ __forceinline__ float maximum(const float (&scores)[kCount]) const {
    // Four chains, so that the latency of a maximum is not waited for.
    float partial[4] = {scores[0], scores[1], scores[2], scores[3]};
#pragma unroll
    for (int i = 4; i + 4 < kCount; i += 8) {
#pragma unroll
      for (int j = 0; j < 4; ++j) partial[j] = ptx::max3(partial[j], scores[i + 2 * j], scores[i + 2 * j + 1]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) partial[j] = fmaxf(partial[j], scores[kCount - 4 + j]);
    return fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3])) * scale.folded;
  }

  // Moves the reference if a score exceeds it by too much; the factor that what was summed before must be multiplied
  // with.
  __device__ __forceinline__ float move_reference(float max) {
    if (!(max > reference + kSlack)) return 1.0f;
    const float before = reference;
    reference = fmaxf(before, is_8_bit(C.facts) ? max - kLowered : max);
    const float factor = ptx::ex2(before - subtrahend());
    sum *= factor;
    return factor;
  }

  __device__ __forceinline__ unsigned p_chunk_address(int byte) const {
    constexpr int kSpan = swizzle_span_bytes(p_swizzle(C));
    const unsigned row = smem + kLayout.p.offset + q_tile * p_slot_bytes(C) + own_row() * kSpan;
    return (swizzle_address(p_swizzle(C), row) ^ (byte % kSpan)) + byte / kSpan * rows_per_cta(C) * kSpan;
  }

  // What was stored of P is seen by the tensor core behind this arrival.
  __device__ __forceinline__ void hand_over(unsigned barrier) const {
    if constexpr (C.p_path == ProbabilityPath::smem) {
      ptx::fence_proxy_async_shared();
    } else {
      ptx::tcgen05_wait_st();
    }
    ptx::tcgen05_fence_before_thread_sync();
    arrive_at_issuer<C>(barrier);
  }

  static constexpr int kWords = kChunk * dtype_bytes(C.facts.dtype) / 4;  // of a chunk's probabilities
  static constexpr int kGroupWords = kGroup * dtype_bytes(C.facts.dtype) / 4;

  // Probabilities of the scores [i, i + kChunk), in their place for the second product.
  __device__ __forceinline__ void store_chunk(const unsigned (&packed)[kWords], int i, int buffer) const {
    constexpr int kBytes = dtype_bytes(C.facts.dtype);
    if constexpr (C.p_path == ProbabilityPath::tmem) {
      ptx::tcgen05_st_32x32b(tmem + buffer * s_columns(C) + p_offset(C) + i * kBytes / 4, packed);
    } else {
      const int first_byte = kBytes * (kCount * part_of_lane(C, lane) + i);
#pragma unroll
      for (int j = 0; j < kWords; j += 4) {
        ptx::st_shared_v4(p_chunk_address(first_byte + 4 * j),
                          {packed[j], packed[j + 1], packed[j + 2], packed[j + 3]});
      }
    }
  }

  // Word `i` of a group's.
  __device__ __forceinline__ unsigned pack(const float (&y)[kGroup], int i) const {
    if constexpr (is_8_bit(C.facts)) return ptx::cvt_e4m3x4(y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3]);
    return ptx::cvt_pack<p_dtype(C)>(y[2 * i], y[2 * i + 1]);
  }

  // Scores become probabilities, group by group: between the exponentials of one stand the exponents of the next, and
  // the sums and words of the one before. A store, which waits for all of its words, stands a group behind them, and
  // what waits for the store another one.
  __device__ __forceinline__ void store_probabilities(const float (&scores)[kCount], int buffer, int slot) {
    if constexpr (has_third_buffer(C)) {
      if (is_behind_other) ptx::barrier_sync(barrier_of_turn(q_tile), 64);
    }
    constexpr int kGroups = kCount / kGroup, kOfChunk = kChunk / kGroup;
    const ptx::FloatPair factor = same_floats(scale.folded), minus_m = same_floats(-subtrahend());
    ptx::FloatPair partial = ptx::pack_floats(sum, 0.0f);
    ptx::FloatPair x[2][kGroup / 2];
    float y[2][kGroup] = {};
    unsigned packed[kCount / kChunk][kWords];
    const auto exponents = [&](int group, int i) {
      const int at = group * kGroup + 2 * i;
      x[group % 2][i] = ptx::fma_f32x2(ptx::pack_floats(scores[at], scores[at + 1]), factor, minus_m);
    };
    const auto add = [&](int group, int i) {
      partial = ptx::add_f32x2(partial, ptx::pack_floats(y[group % 2][2 * i], y[group % 2][2 * i + 1]));
    };
    const auto pack_word = [&](int group, int i) {
      if (i < kGroupWords) packed[group / kOfChunk][group % kOfChunk * kGroupWords + i] = pack(y[group % 2], i);
    };
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) exponents(0, i);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if constexpr (has_third_buffer(C)) {
        if (group == kGroups - 1 && is_before_other) ptx::barrier_arrive(barrier_of_turn(1 - q_tile), 64);
      }
      exp2_of_group(x[group % 2], y[group % 2], [&](int i) {
        if (group + 1 < kGroups && i < 4) exponents(group + 1, i);
        if (group == 0) return;
        if (i == 0) add(group - 1, 0);
        if (i == 1 || i == 2 || i == 3) pack_word(group - 1, i - 1);
        if (i == 4) add(group - 1, 1);
        if (i == 4) add(group - 1, 2);
        if (i == 5) add(group - 1, 3);
        if (i == 5) pack_word(group - 1, 3);
      });
      if (group > 0 && group % kOfChunk == 0)
        store_chunk(packed[group / kOfChunk - 1], (group / kOfChunk - 1) * kChunk, buffer);
      if (has_p_parts(C) && group * kGroup == p_first_keys(C) + kGroup)
        hand_over(barrier_at<kBarriers.p_full>(smem, slot));
    }
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) {
      add(kGroups - 1, i);
      pack_word(kGroups - 1, i);
    }
    store_chunk(packed[kCount / kChunk - 1], kCount - kChunk, buffer);
    hand_over(barrier_at < has_p_parts(C) ? kBarriers.p_rest : kBarriers.p_full > (smem, slot));
    float first, second;
    ptx::unpack_floats(partial, first, second);
    sum = first + second;
  }

  // `hide`: what is to be done to the scores first.
  template <class Hide>
  __device__ __forceinline__ void step(const Hide& hide) {
    const int buffer = position.buffer(q_tile), slot = position.slot(q_tile);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.s_full>(smem, slot), position.parity(slot));
    ptx::tcgen05_fence_after_thread_sync();
    float scores[kCount];
    load_scores(scores, buffer);
    hide(scores);
    float max = maximum(scores);
    if constexpr (is_folded(C)) max = fmaxf(max, other_half(max));
    const float factor = move_reference(max);
    ptx::st_shared_f32(smem + kLayout.factors.offset + 4 * (slot * 128 + lane), factor);
    arrive_of_warp(barrier_at<kBarriers.factors_full>(smem, slot));
    if constexpr (C.p_path == ProbabilityPath::smem) {
      // The product before has read P.
      ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_done>(smem, q_tile), o_parity);
      o_parity ^= 1;
    }
    store_probabilities(scores, buffer, slot);
    position.advance(slot);
  }

  // Row statistics, and the factor that O leaves with.
  // `row`: packed.
  __device__ __forceinline__ void finish(const TileIndex& tile, int row) {
    if constexpr (is_folded(C)) sum += other_half(sum);
    float whole = sum;
    const int head = tile.head * C.pack_gqa + head_of_row<C>(row);
    if constexpr (has_sink(C.facts) && !is_split(C)) {
      if (p.sink != nullptr) whole += attention::sink_share(p.sink[head], subtrahend());
    }
    const float factor = C.facts.output == Output::unnormalized ? 1.0f : whole == 0.0f ? 0.0f : 1.0f / whole;
    ptx::st_shared_f32(smem + kLayout.last.offset + 4 * (q_tile * 128 + lane), factor);
    arrive_of_warp(barrier_at<kBarriers.last_full>(smem, q_tile));
    if (!is_used_row<C>(p, tile, row, is_latent(C) ? own_row() + part_of_lane(C, lane) * rows_per_cta(C) : lane))
      return;
    const long long index = row_index<C>(p, tile, head, row / padded_heads(C));
    if constexpr (is_split(C)) {
      float* const sums = p.partial_sums + 2 * (tile.split * num_rows<C>(p) + index);
      sums[0] = reference;
      sums[1] = sum;
      return;
    }
    if (p.lse != nullptr) p.lse[index] = (subtrahend() + ptx::lg2(sum)) * kLn2;
    if constexpr (C.facts.output == Output::unnormalized) {
      p.row_max[index] = reference * kLn2;
      p.row_sum[index] = sum;
    }
  }

  __device__ __forceinline__ void run() {
    const Schedule<C> schedule{p};
#pragma unroll 1
    for (int round = 0; schedule.has(round); ++round) {
      const TileIndex tile = schedule.at(round);
      const KeyBlocks<C> keys(p, tile);
      const Blocks blocks = keys.of_q_tile(q_tile);
      // Of three buffers the other Q tile's steps take their turn too, a block's first Q tile before the second.
      const Blocks walked = has_third_buffer(C) ? keys.of_tile() : blocks;
      const Blocks others = has_third_buffer(C) ? keys.of_q_tile(1 - q_tile) : blocks;
      const int row = first_row<C>(tile, q_tile) + own_row();
      const Keys visible = keys.visible(row / padded_heads(C));
      if constexpr (has_descales(C.facts)) take_descale(tile);
      attention::TreeRow tree;
      if constexpr (C.facts.tree_mask != TreeMask::none)
        tree = attention::tree_row(p, keys.lengths, first_token<C>(p, tile), row / padded_heads(C));
      if constexpr (C.facts.alibi != Alibi::none) {
        slope = attention::slope_of<C>(p, tile.head * C.pack_gqa + head_of_row<C>(row));
        beside = row / padded_heads(C) + keys.lengths.k - keys.lengths.q;
      }
      const int first_rare = kKnowsRareBlocks ? first_rare_block(visible, keys.key_of(0)) : 0;
      reference = ptx::minus_infinity();
      sum = 0.0f;
#pragma unroll 1
      for (int block = walked.end - 1; block >= walked.begin; --block) {
        if constexpr (has_third_buffer(C)) {
          if (q_tile == 1 && others.has(block)) position.pass();
          if (!blocks.has(block)) {
            if (q_tile == 0 && others.has(block)) position.pass();
            continue;
          }
          is_behind_other = others.has(q_tile == 0 ? block + 1 : block);
          is_before_other = others.has(q_tile == 0 ? block : block - 1);
        }
        const int first = part_of_lane(C, lane) * kCount;
        const bool is_rare = kKnowsRareBlocks ? block >= first_rare : needs_fix_up(visible, keys.key_of(block) + first);
        if constexpr (has_pools(C.facts)) {
          step([&](float(&scores)[kCount]) {
            if (keys.is_listed(block)) {
              hide_missing(scores, keys, block * C.tile_n + first);
            } else if (is_rare) {
              fix_up(scores, visible, keys.key_of(block) + first);
            }
          });
        } else {
          step([&](float(&scores)[kCount]) {
            if constexpr (alters_scores(C.facts)) alter(scores, keys.key_of(block) + first);
            if (is_rare) fix_up(scores, visible, keys.key_of(block) + first);
            if constexpr (C.facts.tree_mask != TreeMask::none)
              hide_by_tree(scores, tree, keys.lengths, keys.key_of(block) + first);
          });
        }
        if constexpr (has_third_buffer(C)) {
          if (q_tile == 0 && others.has(block)) position.pass();
        }
      }
      finish(tile, row);
    }
  }
};

}  // namespace tessera::fmha_tcgen05
