// Consumer warps that share each block's keys, for tiles of at most eight rows: spec/fmha_warps.h. As warps.cuh, but
// products are transposed.
//
// S^T has 16 keys in M and the tile's rows in N. A thread has keys t / 4 and t / 4 + 8 of rows 2 (t % 4) and the next:
// its two rows are the rows of RowStatistics, and eight threads have a row's keys. Packed in pairs of rows, S^T is a
// matrix that movmatrix turns into the B operand of O^T = V^T P^T, whose M are columns of V. Of 8-bit V these are 16 of
// a chunk, the even ones before the odd ones.
//
// 8-bit keys are multiplied as f16, which takes a third of the instructions of widening to bf16. Queries of bf16 become
// f16 for that, each row times a power of two that brings its largest element below 2^15: what is lost is below 2^-39
// of that. The row's scores have the inverse in their scale.
#pragma once

#include "attention/widen.cuh"
#include "fmha/consumer.cuh"
#include "fmha/joined_rows.cuh"
#include "fmha/matmul.cuh"
#include "fmha/softmax.cuh"
#include "fmha/warps.cuh"
#include "ptx/barrier.cuh"
#include "ptx/global.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/math.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Whether a CTA lets the merge begin behind its first blocks, and not as soon as the kernel before has ended.
template <Config C>
__device__ __forceinline__ bool begins_merge_late() {
  return launches_merge_late(C) && (!widens_keys(C.facts) || gridDim.x <= kMostCtasOfLate);
}

template <Config C>
struct EightRowConsumer : Consumer<C> {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr bool kWidens = widens_keys(C.facts);
  static constexpr int kRows = kRowsOfTransposed;
  static constexpr int kKeys = keys_of_warp(C);
  static constexpr int kScoreSteps = qk_columns(C) / 16;
  static constexpr int kChunksOfK = slot_row_bytes(C, qk_columns(C)) / 16;
  static constexpr int kChunksOfV = slot_row_bytes(C, v_columns(C)) / 16;
  static constexpr int kTilesOfO = v_columns(C) / 16;
  static constexpr unsigned kAll = 0xffffffff;
  static constexpr int kLargestOfF16 = 14;                  // the exponent that a narrowed row's largest element gets
  static constexpr int kLeastExponent = kLargestOfF16 + 1;  // biased, of what it is counted as
  using Queries = unsigned[kScoreSteps][2];
  static constexpr bool kNarrows = kWidens && C.facts.dtype == DType::bf16;
  static constexpr DType kScoreType = kWidens ? DType::f16 : C.facts.dtype;
  using KeyScores = float[kKeys / 4];  // of 16 keys four: v / 2 % 2 is the key's eight, v % 2 the row
  using Outputs = float[kTilesOfO][4];

  int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32;
  int lane = static_cast<int>(threadIdx.x) % 32;
  RingPosition<C.stages> ring;
  Scale scales[2] = {this->scale, this->scale};  // of this thread's rows, where queries are narrowed

  __device__ __forceinline__ const Scale& scale_of_row(int r) const { return kNarrows ? scales[r] : this->scale; }

  static __device__ __forceinline__ float max_of_eight(float x) {
#pragma unroll
    for (int i = 4; i < 32; i *= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, i));
    return x;
  }
  static __device__ __forceinline__ float sum_of_eight(float x) {
#pragma unroll
    for (int i = 4; i < 32; i *= 2) x += __shfl_xor_sync(kAll, x, i);
    return x;
  }

  // The B operand of each step. 8-bit keys: columns in the order in which a word of a key has them.
  __device__ __forceinline__ void load_queries(Queries& q) const {
    constexpr int kSpan = swizzle_span_bytes(C.swizzle);
    const Panels<C.swizzle, rows_of_box(C), kSpan> panels{this->q_slot()};
    const unsigned own = panels.chunk(lane / 4, kWidens ? lane % 4 / 2 : 0);
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
      const unsigned first = panels.further(own, 2 * step);
      if constexpr (kWidens) {
        ptx::ld_shared_v2(first + lane % 2 * 8, q[step][0], q[step][1]);
      } else {
        q[step][0] = ptx::ld_shared_u32(first + lane % 4 * 4);
        q[step][1] = ptx::ld_shared_u32(panels.further(own, 2 * step + 1) + lane % 4 * 4);
      }
    }
  }

  // Queries of bf16 as f16. What a row is multiplied with is a power of two of fp32 whatever the row has: infinities
  // stay, and of rows whose elements are all below 2^-112 no more is kept than f16 has of them.
  __device__ __forceinline__ void narrow_queries(Queries& q) {
    unsigned max = 0;
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) max = ptx::max_abs_x2<DType::bf16>(max, q[step][i]);
    }
    int exponent = static_cast<int>(::max(max >> 23, max >> 7 & 0xff));
    exponent = ::max(exponent, __shfl_xor_sync(kAll, exponent, 1));
    exponent = ::max(::max(exponent, __shfl_xor_sync(kAll, exponent, 2)), kLeastExponent);
    const float factor = __uint_as_float(static_cast<unsigned>(2 * 127 + kLargestOfF16 - exponent) << 23);
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        q[step][i] = ptx::cvt_pack<DType::f16>(__uint_as_float(q[step][i] << 16) * factor,
                                               __uint_as_float(q[step][i] & 0xffff0000) * factor);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int of_row = __shfl_sync(kAll, exponent, (lane % 4 * 2 + r) * 4);
      scales[r] = this->scale.times(__uint_as_float(static_cast<unsigned>(of_row - kLargestOfF16) << 23));
    }
  }

  __device__ __forceinline__ void prepare(Queries& q) {
    if constexpr (kNarrows) narrow_queries(q);
  }

  // S^T of this warp's keys, as two sums, of every other step: a product waits for the one before it in its sum.
  __device__ __forceinline__ void multiply_queries(KeyScores& scores, const Queries& q, unsigned slot) const {
    constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, qk_columns(C));
    const Panels<swizzle_of_keys(C, qk_columns(C)), C.tile_n, kSpan> panels{slot};
    float odd[kKeys / 4];
#pragma unroll
    for (int v = 0; v < kKeys / 4; ++v) scores[v] = odd[v] = 0.0f;
    unsigned own[kKeys / 16];
#pragma unroll
    for (int group = 0; group < kKeys / 16; ++group)
      own[group] = panels.chunk(warp * kKeys + 16 * group + lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll
    for (int chunk = 0; chunk < kChunksOfK; chunk += 2) {
#pragma unroll
      for (int group = 0; group < kKeys / 16; ++group) {
        unsigned words[4];
        ptx::ldmatrix_x4(panels.further(own[group], chunk), words);
        if constexpr (kWidens) {
          unsigned a[4];
          attention::widen_word<kScoreType>(words[0], a[0], a[2]);
          attention::widen_word<kScoreType>(words[1], a[1], a[3]);
          ptx::mma_m16n8k16<kScoreType>(scores + 4 * group, a, q[chunk][0], q[chunk][1]);
          attention::widen_word<kScoreType>(words[2], a[0], a[2]);
          attention::widen_word<kScoreType>(words[3], a[1], a[3]);
          ptx::mma_m16n8k16<kScoreType>(odd + 4 * group, a, q[chunk + 1][0], q[chunk + 1][1]);
        } else {
          ptx::mma_m16n8k16<C.facts.dtype>((chunk / 2 % 2 == 0 ? scores : odd) + 4 * group, words, q[chunk / 2][0],
                                           q[chunk / 2][1]);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < kKeys / 4; ++v) scores[v] += odd[v];
  }

  // O^T += V^T P^T of this warp's keys.
  __device__ __forceinline__ void multiply_values(Outputs& output, const unsigned (&p)[kKeys / 16][2],
                                                  unsigned slot) const {
    constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, v_columns(C));
    constexpr DType kType = p_dtype(C);
    const Panels<swizzle_of_keys(C, v_columns(C)), C.tile_n, kSpan> panels{slot};
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const unsigned own = panels.chunk(warp * kKeys + 16 * step + lane % 16, lane / 16);
#pragma unroll
      for (int chunk = 0; chunk < kChunksOfV; chunk += 2) {
        unsigned words[4];
        ptx::ldmatrix_x4_trans(panels.further(own, chunk), words);
        if constexpr (kWidens) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            unsigned a[4];
            attention::widen_word<kType>(ptx::prmt(words[2 * i], 0, 0x3120), a[0], a[1]);
            attention::widen_word<kType>(ptx::prmt(words[2 * i + 1], 0, 0x3120), a[2], a[3]);
            ptx::mma_m16n8k16<kType>(output[chunk + i], a, p[step][0], p[step][1]);
          }
        } else {
          const unsigned a[4] = {words[0], words[2], words[1], words[3]};
          ptx::mma_m16n8k16<kType>(output[chunk / 2], a, p[step][0], p[step][1]);
        }
      }
    }
  }

  // As fix_up() of Consumer, for this warp's keys.
  __device__ __forceinline__ void fix_up_own(KeyScores& scores) const {
    const int first_of_block = this->first_key + (this->blocks - 1) * C.tile_n;
    const bool is_applied = scale_of_row(0).is_applied() || scale_of_row(1).is_applied();
    if (!is_applied && !this->has_hidden(first_of_block)) return;
    const int own_key = first_of_block + warp * kKeys + lane / 4;
    const int row = this->first_row + lane % 4 * 2;
    const int limits[2] = {visible_end<C>(this->p, this->lengths(), row) - own_key,
                           visible_end<C>(this->p, this->lengths(), row + 1) - own_key};
#pragma unroll
    for (int v = 0; v < kKeys / 4; ++v)
      scores[v] = v / 2 * 8 < limits[v % 2] ? scores[v] * scale_of_row(v % 2).factor() : ptx::minus_infinity();
  }

  // The references become the maxima of rows, and O follows.
  __device__ __forceinline__ void move(const float (&max)[2], Outputs& output) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float before = this->rows.reference[r];
      this->rows.reference[r] = fmaxf(before, max_of_eight(max[r]));
      const float factor = ptx::ex2(before - this->rows.subtrahend(r));
      this->rows.sum[r] *= factor;
#pragma unroll
      for (int i = 0; i < kTilesOfO; ++i) {
        output[i][r] *= factor;
        output[i][2 + r] *= factor;
      }
    }
  }

  __device__ __forceinline__ void step(const Queries& q, Outputs& output) {
    KeyScores scores;
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.k_full>(this->smem, ring.slot()), ring.parity());
    multiply_queries(scores, q, this->smem + kLayout.k.offset + ring.slot() * k_slot_bytes(C));
    end_reads();
    this->template release<kBarriers.k_empty>(ring);
    fix_up_own(scores);
    float max[2] = {scores[0], scores[1]};
#pragma unroll
    for (int v = 2; v < kKeys / 4; ++v) max[v % 2] = fmaxf(max[v % 2], scores[v]);
#pragma unroll
    for (int r = 0; r < 2; ++r) max[r] *= scale_of_row(r).folded;
    if (__any_sync(kAll, this->rows.is_exceeded(max))) move(max, output);
#pragma unroll
    for (int v = 0; v < kKeys / 4; ++v) {
      scores[v] = ptx::ex2(fmaf(scores[v], scale_of_row(v % 2).folded, -this->rows.subtrahend(v % 2)));
      this->rows.sum[v % 2] += scores[v];
    }
    unsigned p[kKeys / 16][2];
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i)
      p[i / 2][i % 2] = ptx::movmatrix_trans(ptx::cvt_pack<p_dtype(C)>(scores[2 * i], scores[2 * i + 1]));
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.v_full>(this->smem, ring.slot()), ring.parity());
    multiply_values(output, p, this->smem + kLayout.v.offset + ring.slot() * v_slot_bytes(C));
    end_reads();
    this->template release<kBarriers.v_empty>(ring);
    ring.advance();
  }

  static __device__ __forceinline__ void sync_warps() { ptx::barrier_sync(kBarrierOfWarpgroup, kWarpgroupThreads); }

  // A tile's end: each warp leaves its rows, and adds up and stores every fourth of them.
  __device__ __forceinline__ unsigned sums_of(int of_warp, int row) const {
    return this->smem + kLayout.joined.offset + 8 * (of_warp * kRows + row);
  }
  __device__ __forceinline__ unsigned row_of(int of_warp, int row) const {
    return this->smem + kLayout.joined.offset + joined_sums_bytes(C) + (of_warp * kRows + row) * joined_row_bytes(C);
  }

  __device__ __forceinline__ void leave_rows(const Outputs& output) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_eight(this->rows.sum[r]);
      const int row = lane % 4 * 2 + r;
      if (lane < 4) ptx::st_shared_v2_f32(sums_of(warp, row), this->rows.reference[r], sum);
      const unsigned to = row_of(warp, row);
#pragma unroll
      for (int i = 0; i < kTilesOfO; ++i) {
        if constexpr (kWidens) {
          ptx::st_shared_v2_f32(to + 64 * i + lane / 4 * 8, output[i][r], output[i][2 + r]);
        } else {
          ptx::st_shared_f32(to + 64 * i + lane / 4 * 4, output[i][r]);
          ptx::st_shared_f32(to + 64 * i + 32 + lane / 4 * 4, output[i][2 + r]);
        }
      }
    }
  }
  // The row's reference and sum of all warps' keys, as this thread's first row, and the weights of their columns.
  __device__ __forceinline__ void join_sums(int row, float (&weights)[kConsumerWarps]) {
    float of_warp[kConsumerWarps];
    this->rows = RowStatistics{};
#pragma unroll
    for (int i = 0; i < kConsumerWarps; ++i) {
      unsigned bits, sum;
      ptx::ld_shared_v2(sums_of(i, row), bits, sum);
      weights[i] = __uint_as_float(bits);
      of_warp[i] = __uint_as_float(sum);
      this->rows.reference[0] = fmaxf(this->rows.reference[0], weights[i]);
    }
#pragma unroll
    for (int i = 0; i < kConsumerWarps; ++i) {
      weights[i] = ptx::ex2(weights[i] - this->rows.subtrahend(0));
      this->rows.sum[0] += of_warp[i] * weights[i];
    }
  }
  // Four columns of a row, which is one of the head's.
  __device__ __forceinline__ void store_columns_of(const TileIndex& tile, char* to, int column,
                                                   const float (&four)[4]) const {
    if (is_part<C>(tile)) {
      ptx::st_global_v4(to + 4 * column, {__float_as_uint(four[0]), __float_as_uint(four[1]), __float_as_uint(four[2]),
                                          __float_as_uint(four[3])});
    } else {
      ptx::st_global_v2(to + o_element_bytes(C.facts) * column, ptx::cvt_pack<o_dtype(C.facts)>(four[0], four[1]),
                        ptx::cvt_pack<o_dtype(C.facts)>(four[2], four[3]));
    }
  }

  __device__ __forceinline__ void finish(const TileIndex& tile, const Outputs& output, bool is_first) {
    if (!is_first) sync_warps();  // what the tile before left has been read
    leave_rows(output);
    sync_warps();
    const int rows = min(rows_of_tile_head<C>(this->p, tile) - tile.m * C.tile_m, kRows);
#pragma unroll 1
    for (int row = warp; row < rows; row += kConsumerWarps) {
      const int own = tile.m * C.tile_m + row;
      float weights[kConsumerWarps], factor[2];
      join_sums(row, weights);
      this->finish_rows(tile, factor);
      if (lane == 0) store_statistic<C>(this->p, tile, this->rows, 0, own);
      char* const to = row_to_store<C>(this->p, tile, own);
#pragma unroll
      for (int first = 0; first < o_columns(C); first += 128) {
        const int column = first + 4 * lane;
        if (o_columns(C) % 128 != 0 && column >= o_columns(C)) continue;
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < kConsumerWarps; ++i) {
          float four[4];
          ptx::ld_shared_v4_f32(row_of(i, row) + 4 * column, four);
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[j] = fmaf(four[j], weights[i], sums[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[j] *= factor[0];
        store_columns_of(tile, to, column, sums);
      }
    }
  }

  __device__ __forceinline__ void run() {
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0; this->schedule.has(round); round = this->schedule.next(round, tile)) {
      tile = this->schedule.at(round);
      Queries q;
      begin_shared<C>(*this, tile, q, round);
      Outputs output;
#pragma unroll
      for (int i = 0; i < kTilesOfO; ++i)
#pragma unroll
        for (int v = 0; v < 4; ++v) output[i][v] = 0.0f;
#pragma unroll 1
      for (; this->blocks > 0; --this->blocks) {
        if (begins_merge_late<C>() && (kWidens || this->blocks <= 2)) ptx::griddepcontrol_launch_dependents();
        step(q, output);
      }
      finish(tile, output, round == 0);
    }
  }
};

template <Config C>
__device__ __forceinline__ void consume_eight_rows(const Params& p, const Schedule<C>& schedule, unsigned smem) {
  EightRowConsumer<C> consumer{{p, schedule, smem}};
  consumer.run();
}

}  // namespace tessera::fmha
