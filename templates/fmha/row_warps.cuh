// Consumer warps with rows of their own, by mma.sync: spec/fmha_warps.h.
//
// A warp has 16 rows of each of its groups of 64: of one, or of two, so that a fragment of K or V serves twice. What a
// thread holds of a group is what wgmma would give it (matmul.cuh), so masks, softmax and stores are those of the other
// kernels: a group is a Consumer with its own place and rows.
//
// Warps meet nowhere but at the slots. Two of each scheduler are at different places, and one's exponentials fall into
// the other's products. Within a warp P is made 16 keys ahead of the products that take it.
//
// Fragments of the next products are on their way while these are multiplied. ldmatrix fills registers in the order in
// which products take pairs of them. Eight rows of a matrix are a repeat of the swizzle's pattern, in the same chunk,
// so they lie in different banks; and all addresses of a lane differ from its first one in a sum, and in bits that are
// exclusive-ored.
#pragma once

#include "attention/widen.cuh"
#include "attention/widen_scaled.cuh"
#include "fmha/alter.cuh"
#include "fmha/consumer.cuh"
#include "fmha/lane_rows.cuh"
#include "fmha/mask.cuh"
#include "fmha/matmul.cuh"
#include "fmha/pools.cuh"
#include "fmha/softmax.cuh"
#include "fmha/tree.cuh"
#include "fmha/warps.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/mma_8_bit.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
struct RowConsumer : Consumer<C> {
  using Group = Consumer<C>;
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kGroups = row_blocks(C);
  static constexpr bool kWidens = widens_keys(C.facts);
  static constexpr bool kIs8Bit = is_8_bit(C.facts);
  static constexpr bool kIsScaled = has_key_scales(C.facts);
  static constexpr bool kIsNibbles = has_key_nibbles(C.facts);
  static constexpr int kScalesOfK = key_scale_bytes(C.facts, qk_columns(C));
  static constexpr int kScalesOfV = key_scale_bytes(C.facts, v_columns(C));
  static constexpr int kPairs = attention::kPairsOfWord<C.facts.kv_format>;
  // Steps of the instruction's k along the columns of Q and K; 16-byte chunks of a row of K or V.
  static constexpr int kScoreSteps = qk_columns(C) * dtype_bytes(C.facts.dtype) / 32;
  static constexpr int kChunksOfK = slot_row_bytes(C, qk_columns(C)) / 16;
  static constexpr int kChunksOfV = slot_row_bytes(C, v_columns(C)) / 16;
  static constexpr int kStepsOfPair = kIsNibbles ? 4 : kWidens ? 2 : 1;  // of two chunks of K
  static constexpr int kKeysOfStep = kIs8Bit ? 32 : 16;                  // of P V
  using Fragment = unsigned[4];
  using Operands = Fragment[kGroups];  // the A operand of a step
  using QueryFragments = Operands[holds_queries(C) ? kScoreSteps : 1];
  using Outputs = Accumulator<C>[kGroups];
  using KeyRows = LaneRows<key_span_bytes(C.facts, C.swizzle, qk_columns(C)), C.tile_n>;
  // Of a V whose keys are contiguous rows are columns, and chunks have keys: they lie as K's do.
  static constexpr bool kIsKMajorV = C.facts.v_layout == Layout::k_major;
  using ValueRows = LaneRows<key_span_bytes(C.facts, C.swizzle, v_columns(C)), kIsKMajorV ? v_columns(C) : C.tile_n>;

  RowStatistics of_groups[kGroups] = {};  // in place of rows
  float slopes_of_groups[kGroups][2] = {};
  // Addresses are computed again for each block: no register is kept for them.
  static __device__ __forceinline__ int own_lane() { return static_cast<int>(threadIdx.x) % 32; }
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32, 0);

  // What `work` asks of this Consumer is a group's.
  template <class Work>
  __device__ __forceinline__ void as_group(int g, const Work& work) {
    this->warpgroup += g;
    this->rows = of_groups[g];
    work();
    this->warpgroup -= g;
  }

  // The A operand of a step. 8-bit keys: columns in the order in which a word of a key has them.
  __device__ __forceinline__ void load_query(Fragment& q, int lane, int g, int step) const {
    constexpr int kSpan = swizzle_span_bytes(C.swizzle);
    const unsigned slots = this->smem + kLayout.q.offset, slot = (this->q_index() + g) * q_slot_bytes(C);
    if constexpr (kIsNibbles) {
      const LaneRows<kSpan, kRowsPerWarpgroup> rows(slots, 16 * warp + lane / 4, lane % 4);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const ptx::Words4 words = ptx::ld_shared_v4(rows.at(slot, step / 2 * 4, 8 * r));
        const bool is_first = step % 2 == 0;
        pair_columns(is_first ? words.x : words.y, is_first ? words.z : words.w, q[r], q[2 + r]);
      }
    } else if constexpr (kWidens) {
      // Halves of a chunk lie where its bits are: what the swizzle exchanges are chunks.
      const LaneRows<kSpan, kRowsPerWarpgroup> rows(slots, 16 * warp + lane / 4, lane % 4 / 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) ptx::ld_shared_v2(rows.at(slot + lane % 2 * 8, 2 * step, 8 * r), q[r], q[2 + r]);
    } else {
      const LaneRows<kSpan, kRowsPerWarpgroup> rows(slots, 16 * warp + row_of_value(lane), chunk_of_value(lane));
      ptx::ldmatrix_x4(rows.at(slot, 2 * step, 0), q);
    }
  }
  __device__ __forceinline__ void load_step(Operands& q, int lane, int step) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) load_query(q[g], lane, g, step);
  }
  __device__ __forceinline__ void load_queries(QueryFragments& held) const {
    if constexpr (holds_queries(C)) {
#pragma unroll
      for (int step = 0; step < kScoreSteps; ++step) load_step(held[step], own_lane(), step);
    }
  }

  template <DType kType>
  __device__ __forceinline__ static void multiply(float* sums, const Fragment& a, unsigned low, unsigned high) {
    if constexpr (kIs8Bit) {
      ptx::mma_m16n8k32<kType, kType>(sums, a, low, high);
    } else {
      ptx::mma_m16n8k16<kType>(sums, a, low, high);
    }
  }

  // As multiply_keys() below, of codes with scales, `scales` the lane's of the first key and block of the chunks.
  __device__ __forceinline__ static void multiply_scaled(Scores<C> (&scores)[kGroups], const Operands& q,
                                                         const Fragment& words, int part_of_pair, int first,
                                                         unsigned scales) {
    const int half = part_of_pair * 2 / kStepsOfPair, pair = part_of_pair % (kStepsOfPair / 2) * 2;
    const int block = kIsNibbles ? 2 * half + static_cast<int>(threadIdx.x) % 4 / 2 : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned code = ptx::ld_shared_u8(scales + 8 * i * kScalesOfK + block);
      unsigned pairs[kPairs];
      attention::widen_pairs<C.facts.kv_format>(words[2 * i + half],
                                                attention::scale_pair<C.facts.kv_format>(code, code), pairs);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        multiply<C.facts.dtype>(scores[g] + first / 2 + 4 * i, q[g], pairs[pair], pairs[pair + 1]);
    }
  }

  // Two chunks of 16 keys, and the products of the step, or of 8-bit keys of one half, with every group's rows.
  __device__ __forceinline__ static void multiply_keys(Scores<C> (&scores)[kGroups], const Operands& q,
                                                       const Fragment& words, int half, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned low = words[2 * i], high = words[2 * i + 1];
      if constexpr (kWidens) attention::widen_word<C.facts.dtype>(words[2 * i + half], low, high);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) multiply<C.facts.dtype>(scores[g] + first / 2 + 4 * i, q[g], low, high);
    }
  }

  // S of a block, whose slot begins at `offset` of all.
  __device__ __forceinline__ void multiply_queries(Scores<C> (&scores)[kGroups], const QueryFragments& held,
                                                   unsigned offset) const {
    constexpr int kParts = C.tile_n / 16, kPairs = (kChunksOfK + 1) / 2;
    const int lane = own_lane();
    const KeyRows pair(this->smem + kLayout.k.offset, row_of_key(lane), chunk_of_key(lane));
    const KeyRows single(this->smem + kLayout.k.offset, row_of_key(lane), 0);
    [[maybe_unused]] const unsigned scales = this->smem + kLayout.k_scales.offset +
                                             this->kv.slot() * scale_slot_bytes(C, qk_columns(C)) +
                                             lane / 4 * kScalesOfK;
    constexpr int kHeldSteps = kIsNibbles ? 4 : 2;  // at a time, where not all are held
    Fragment words[2];
    Operands q[kHeldSteps];
    const auto fetch = [&](int i) {
      const int chunk = i / kParts * 2;
      const KeyRows& rows = chunk + 1 < kChunksOfK ? pair : single;
      ptx::ldmatrix_x4(rows.at(offset, chunk, i % kParts * 16), words[i % 2]);
    };
    // Of 16-bit keys one step ahead.
    const auto fetch_queries = [&](int first) {
      if constexpr (!holds_queries(C)) {
#pragma unroll
        for (int step = first; step < first + kStepsOfPair; ++step)
          if (step < kScoreSteps) load_step(q[step % kHeldSteps], lane, step);
      }
    };
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int v = 0; v < C.tile_n / 2; ++v) scores[g][v] = 0.0f;
    }
    fetch_queries(0);
    fetch(0);
#pragma unroll
    for (int at = 0; at < kPairs; ++at) {
      if constexpr (!kWidens) fetch_queries(at + 1);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int i = at * kParts + part;
        if (i + 1 < kPairs * kParts) fetch(i + 1);
#pragma unroll
        for (int half = 0; half < kStepsOfPair; ++half) {
          const int step = at * kStepsOfPair + half;
          if (step >= kScoreSteps) continue;
          if constexpr (kIsScaled) {
            const unsigned of_pair = scales + part * 16 * kScalesOfK + at * (kIsNibbles ? 4 : 1);
            if constexpr (holds_queries(C)) {
              multiply_scaled(scores, held[step], words[i % 2], half, part * 16, of_pair);
            } else {
              multiply_scaled(scores, q[step % kHeldSteps], words[i % 2], half, part * 16, of_pair);
            }
          } else if constexpr (holds_queries(C)) {
            multiply_keys(scores, held[step], words[i % 2], half, part * 16);
          } else {
            multiply_keys(scores, q[step % kHeldSteps], words[i % 2], half, part * 16);
          }
        }
      }
      if constexpr (kWidens) fetch_queries((at + 1) * kStepsOfPair);
    }
  }

  // Scores of a step's keys become P.
  __device__ __forceinline__ static void exponentiate_step(Fragment& p, const Scores<C>& scores, int step,
                                                           const Scale& scale, const float (&subtrahend)[2],
                                                           float (&sum)[4]) {
    constexpr int kScores = kKeysOfStep / 2;
    float x[kScores];
#pragma unroll
    for (int v = 0; v < kScores; ++v) {
      x[v] = ptx::ex2(fmaf(scores[kScores * step + v], scale.folded, -subtrahend[v / 2 % 2]));
      sum[v / 2 % 4] += x[v];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kIs8Bit) {
        const int first = j / 2 * 8 + j % 2 * 2;  // as pack() of matmul.cuh
        p[j] = ptx::cvt_e4m3x4(x[first], x[first + 1], x[first + 4], x[first + 5]);
      } else {
        p[j] = ptx::cvt_pack<p_dtype(C)>(x[2 * j], x[2 * j + 1]);
      }
    }
  }

  // Of 8 bits: the 32 values of a chunk's columns, those of the even and of the odd ones.
  __device__ __forceinline__ static void multiply_bytes(Outputs& outputs, const Operands& p, const Fragment& words,
                                                        int chunk) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const unsigned picked = odd == 0 ? 0x6420 : 0x7531;
      const unsigned low = ptx::prmt(words[0], words[1], picked), high = ptx::prmt(words[2], words[3], picked);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) multiply<C.facts.dtype>(outputs[g] + 8 * chunk + 4 * odd, p[g], low, high);
    }
  }

  // 16 values of a chunk of columns, the i-th of two, times P. `scales`: of the lane's first key, if there are any.
  __device__ __forceinline__ static void multiply_chunk(Outputs& outputs, const Operands& p, const Fragment& words,
                                                        int i, int chunk, unsigned scales) {
    constexpr DType kType = p_dtype(C);
    if constexpr (kIsScaled) {
      const int block = kIsNibbles ? 2 * chunk + static_cast<int>(threadIdx.x) % 32 / 16 : chunk / 2;
      unsigned pairs[2][kPairs];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        widen_values<C>(words[2 * i + half], scales + 8 * half * kScalesOfV + block, pairs[half]);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < kPairs; ++j)
          ptx::mma_m16n8k16<kType>(outputs[g] + 4 * (chunk * kPairs + j), p[g], pairs[0][j], pairs[1][j]);
      }
    } else if constexpr (kWidens) {
      // Bytes: an even and an odd column of one key, the same of the next key.
      unsigned even[2], odd[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        attention::widen_word<kType>(ptx::prmt(words[2 * i + half], 0, 0x3120), even[half], odd[half]);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        ptx::mma_m16n8k16<kType>(outputs[g] + 8 * chunk, p[g], even[0], even[1]);
        ptx::mma_m16n8k16<kType>(outputs[g] + 8 * chunk + 4, p[g], odd[0], odd[1]);
      }
    } else {
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        ptx::mma_m16n8k16<kType>(outputs[g] + 4 * chunk, p[g], words[2 * i], words[2 * i + 1]);
    }
  }

  // O += P V of a block, P made on the way from scores.
  __device__ __forceinline__ void multiply_values(Outputs& outputs, const Scores<C> (&scores)[kGroups],
                                                  unsigned offset) {
    // Of 8 bits a matrix has the same columns of the next keys, so a unit is one chunk; else two.
    constexpr int kSteps = C.tile_n / kKeysOfStep, kChunksOfUnit = kIs8Bit ? 1 : 2;
    constexpr int kPairs = (kChunksOfV + kChunksOfUnit - 1) / kChunksOfUnit, kParts = (kPairs + kGroups - 1) / kGroups;
    const int lane = own_lane();
    const ValueRows pair(this->smem + kLayout.v.offset, kIsKMajorV ? row_of_key(lane) : row_of_value(lane),
                         kIsKMajorV ? chunk_of_key(lane) : chunk_of_value(lane));
    const ValueRows single(this->smem + kLayout.v.offset, kIs8Bit ? lane : row_of_value(lane), 0);
    const unsigned scales = this->smem + kLayout.v_scales.offset + this->kv.slot() * scale_slot_bytes(C, v_columns(C)) +
                            lane % 4 * 2 * kScalesOfV;
    Fragment words[2];
    Operands p[2];
    float subtrahend[kGroups][2], sum[kGroups][4];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        subtrahend[g][r] = of_groups[g].subtrahend(r);
        sum[g][r] = of_groups[g].sum[r];
        sum[g][2 + r] = 0.0f;
      }
    }
    const auto fetch = [&](int i) {
      const int chunk = i % kPairs * kChunksOfUnit;
      if constexpr (kIsKMajorV) {
        ptx::ldmatrix_x4(pair.at(offset, i / kPairs * 2, chunk * 8), words[i % 2]);
        return;
      }
      const ValueRows& rows = !kIs8Bit && chunk + 1 < kChunksOfV ? pair : single;
      ptx::ldmatrix_x4_trans(rows.at(offset, chunk, i / kPairs * kKeysOfStep), words[i % 2]);
    };
    const auto exponentiate = [&](int g, int step) {
      exponentiate_step(p[step % 2][g], scores[g], step, this->scale, subtrahend[g], sum[g]);
    };
    fetch(0);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) exponentiate(g, 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        // A group's exponentials, and a part of the columns.
        if (step + 1 < kSteps) exponentiate(g, step + 1);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const int at = g * kParts + part, i = step * kPairs + at;
          if (at >= kPairs) continue;
          if (i + 1 < kSteps * kPairs) fetch(i + 1);
          if constexpr (kIs8Bit) {
            multiply_bytes(outputs, p[step % 2], words[i % 2], at);
          } else {
#pragma unroll
            for (int j = 0; j < 2; ++j)
              if (2 * at + j < kChunksOfV)
                multiply_chunk(outputs, p[step % 2], words[i % 2], j, 2 * at + j, scales + 16 * step * kScalesOfV);
          }
        }
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int r = 0; r < 2; ++r) of_groups[g].sum[r] = sum[g][r] + sum[g][2 + r];
    }
  }

  // Whether some key of a block is hidden from some of this warp's 16 rows of a group.
  __device__ __forceinline__ bool has_hidden_of(int g, int first_key_of_block) const {
    const int row = this->first_row + (this->warpgroup + g) * kRowsPerWarpgroup + 16 * warp;
    if (first_key_of_block + C.tile_n > visible_end<C>(this->p, this->lengths(), row)) return true;
    if constexpr (!hides_first_keys(C.facts)) return false;
    const int last_row = row + 15;
    if (C.facts.seqused == UsedLengths::qk && last_row >= this->lengths().q * C.pack_gqa) return true;
    return first_key_of_block < visible_keys<C>(this->p, this->lengths(), last_row).begin;
  }

  // As fix_up() of Consumer.
  __device__ __forceinline__ void fix_up_of(Scores<C>& scores, int g) const {
    const int first = (has_first_key(C) ? this->first_key : 0) + (this->blocks - 1) * C.tile_n;
    const int row = this->first_row + this->row_in_tile() + g * kRowsPerWarpgroup;
    if constexpr (alters_scores(C.facts))
      alter_scores<C>(scores, this->altering, slopes_of_groups[g], this->lengths(), row, first);
    if (this->scale.is_applied() || has_hidden_of(g, first))
      scale_and_mask<C>(scores, this->p, this->lengths(), this->scale.factor(), row, first);
    if constexpr (C.facts.tree_mask != TreeMask::none)
      hide_by_tree<C>(scores, this->p, this->lengths(), this->token, row, first);
  }

  // References move where some row's scores exceed its own by much; O follows.
  __device__ __forceinline__ void follow_maxima(Scores<C> (&scores)[kGroups], Outputs& outputs,
                                                const PresentKeys<C>& present) {
    float max[kGroups][2];
    bool is_exceeded = false;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (has_pools(C)) {
        present.hide_others(scores[g], this->scale);
      } else {
        fix_up_of(scores[g], g);
      }
      find_maxima(scores[g], this->scale, max[g]);
      if constexpr (has_split_size(C.facts) && is_ragged(C.facts))
        as_group(g, [&] { this->leave_out_foreign_rows(max[g]); });
      is_exceeded = is_exceeded || of_groups[g].is_exceeded(max[g]);
    }
    if (!__any_sync(0xffffffff, is_exceeded)) return;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float factor[2];
      if constexpr (kIs8Bit) {
        // P of 8 bits has more to say of numbers above 1: a row's largest counts as 2^kLoweredOfWarps.
        max[g][0] -= kLoweredOfWarps;
        max[g][1] -= kLoweredOfWarps;
      }
      of_groups[g].move(max[g], factor);
      rescale(outputs[g], factor);
    }
  }

  __device__ __forceinline__ void step(const QueryFragments& held, Outputs& outputs) {
    Scores<C> scores[kGroups];
    typename Group::KvPosition& at = this->kv;
    at.advance();
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.k_full>(this->smem, at.slot()), at.parity());
    multiply_queries(scores, held, at.slot() * k_slot_bytes(C));
    [[maybe_unused]] PresentKeys<C> present;
    if constexpr (has_pools(C)) present.load(this->smem, at.slot());
    end_reads();
    this->template release<kBarriers.k_empty>(at);
    follow_maxima(scores, outputs, present);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.v_full>(this->smem, at.slot()), at.parity());
    multiply_values(outputs, scores, at.slot() * v_slot_bytes(C));
    end_reads();
    this->template release<kBarriers.v_empty>(at);
  }

  // Goes on to a tile, once Q of all groups is there.
  __device__ __forceinline__ void begin_tile(const TileIndex& tile) {
    this->begin(tile);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      of_groups[g] = RowStatistics{};
      if constexpr (C.facts.alibi != Alibi::none) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          as_group(g, [&] { slopes_of_groups[g][r] = attention::slope_of<C>(this->p, this->head_of_row(tile, r)); });
      }
      if (g > 0)
        ptx::mbarrier_wait_parity(barrier_at<kBarriers.q_full>(this->smem, this->q_index() + g), this->q.parity());
    }
  }

  // Those that no group sees.
  __device__ __forceinline__ int hidden_of_all(const TileIndex& tile) {
    int hidden = this->hidden_blocks(tile);
#pragma unroll
    for (int g = 1; g < kGroups; ++g) as_group(g, [&] { hidden = min(hidden, this->hidden_blocks(tile)); });
    return hidden;
  }

  __device__ __forceinline__ void finish(const TileIndex& tile, Outputs& outputs) {
    end_reads();  // of Q
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      as_group(g, [&] {
        float factor[2];
        this->finish_rows(tile, factor);
        if (scales_finished(C)) rescale(outputs[g], factor);
        this->hand_over(outputs[g], tile, this->q);
        this->write_statistics(tile);
      });
    }
  }

  __device__ __forceinline__ void run() {
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0; this->schedule.has(round); round = this->schedule.next(round, tile)) {
      tile = this->schedule.at(round);
      begin_tile(tile);
      QueryFragments held;
      load_queries(held);
      Outputs outputs;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int v = 0; v < v_columns(C) / 2; ++v) outputs[g][v] = 0.0f;
      }
      this->skip_blocks(hidden_of_all(tile));
#pragma unroll 1
      for (; this->blocks > 0; --this->blocks) step(held, outputs);
      finish(passes_tiles(C) ? this->schedule.at(round) : tile, outputs);
    }
  }
};

template <Config C>
__device__ __forceinline__ void consume_rows(const Params& p, const typename ConsumerSchedule<C>::Type& schedule,
                                             unsigned smem) {
  RowConsumer<C> consumer{{p, schedule, smem}};
  consumer.warpgroup *= row_blocks(C);
  consumer.run();
}

}  // namespace tessera::fmha
