// Consumer warps that share each block's keys, for tiles of at most eight rows: spec/fmha_warps.h. As warps.cuh, but
// products are transposed.
//
// S^T has 16 keys in M and the tile's rows in N. A thread has keys t / 4 and t / 4 + 8 of rows 2 (t % 4) and the next:
// its two rows are the rows of RowStatistics, and eight threads have a row's keys. Packed in pairs of rows, S^T is a
// matrix that movmatrix turns into the B operand of O^T = V^T P^T, whose M are columns of V. Of 8-bit V these are 16 of
// a chunk, the even ones before the odd ones.
//
// In the kernels of an engine's step over 8-bit keys (has_raw_tiles) the same code works on tiles of at most eight rows
// between others by wgmma: it reads the slots that loads fill for the warps that widen. These see each block come and
// say so, and take no part in it. Of two warpgroups each takes every second block; all warps join their rows in the
// slots of the tile's Q.
//
// 8-bit keys are multiplied as f16, which takes a third of the instructions of widening to bf16. Queries of bf16 become
// f16 for that, each row times a power of two that brings its largest element below 2^15: what is lost is below 2^-39
// of that. The row's scores have the inverse in their scale.
#pragma once

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
#include "ptx/mma_narrow.cuh"
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
  static constexpr int kKeys = has_raw_tiles(C) ? 16 : keys_of_warp(C);  // at a time
  static constexpr int kScoreSteps = qk_columns(C) / 16;
  static constexpr int kChunksOfK = key_row_bytes(C.facts, qk_columns(C)) / 16;
  static constexpr int kChunksOfV = key_row_bytes(C.facts, v_columns(C)) / 16;
  static constexpr LoadRing kRingOfK = load_ring(C, false), kRingOfV = load_ring(C, true);
  static constexpr bool kIsOfStep = has_raw_tiles(C);  // beside tiles by wgmma
  static constexpr int kWarps = kConsumerWarps * consumer_warpgroups(C);
  static constexpr int kTilesOfO = v_columns(C) / 16;
  static constexpr unsigned kAll = 0xffffffff;
  static constexpr int kLargestOfF16 = 14;                  // the exponent that a narrowed row's largest element gets
  static constexpr int kLeastExponent = kLargestOfF16 + 1;  // biased, of what it is counted as
  using Queries = unsigned[kScoreSteps][2];
  static constexpr bool kNarrows = kWidens && C.facts.dtype == DType::bf16;
  static constexpr DType kScoreType = kWidens ? DType::f16 : C.facts.dtype;
  using KeyScores = float[kKeys / 4];  // of 16 keys four: v / 2 % 2 is the key's eight, v % 2 the row
  using Outputs = float[kTilesOfO][4];

  int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32;  // of a step's kernel, like the lane: in raw tiles
  int lane = static_cast<int>(threadIdx.x) % 32;
  RingPosition<load_stages(C, false)> ring;
  RingPosition<load_stages(C, false)> ready;     // of raw tiles' blocks alone: beside tiles by wgmma
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

  // Of the first rows, whose slots the other rows' follow.
  __device__ __forceinline__ unsigned first_q_slot() const {
    const int first = this->q.slot() * row_groups(C) * q_slot_bytes(C);
    return kIsOfStep ? this->smem + kLayout.q.offset + first : this->q_slot();
  }

  using QueryPanels = Panels<C.swizzle, rows_of_box(C), swizzle_span_bytes(C.swizzle)>;
  __device__ __forceinline__ unsigned own_query() const {
    return QueryPanels{first_q_slot()}.chunk(lane / 4, kWidens ? lane % 4 / 2 : 0);
  }

  // The B operand of each step. 8-bit keys: columns in the order in which a word of a key has them.
  __device__ __forceinline__ void load_queries(Queries& q) const {
    const unsigned own = own_query();
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
      const unsigned first = QueryPanels::further(own, 2 * step);
      if constexpr (kWidens) {
        ptx::ld_shared_v2(first + lane % 2 * 8, q[step][0], q[step][1]);
      } else {
        q[step][0] = ptx::ld_shared_u32(first + lane % 4 * 4);
        q[step][1] = ptx::ld_shared_u32(QueryPanels::further(own, 2 * step + 1) + lane % 4 * 4);
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

  // The same in the slot, before queries are loaded, a row to a warp, for all warps: a fifth of the code. What rows
  // were divided by waits where their sums will.
  __device__ __forceinline__ void narrow_rows() const {
    constexpr int kChunks = qk_columns(C) / 8;
    static_assert(kChunks <= 32);
    const Panels<C.swizzle, rows_of_box(C), swizzle_span_bytes(C.swizzle)> panels{first_q_slot()};
#pragma unroll 1
    for (int row = number(); row < kRows; row += kWarps) {
      ptx::Words4 words{0, 0, 0, 0};
      const unsigned chunk = panels.chunk(row, min(lane, kChunks - 1));
      if (lane < kChunks) words = ptx::ld_shared_v4(chunk);
      unsigned* const pairs[4] = {&words.x, &words.y, &words.z, &words.w};
      unsigned max = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) max = ptx::max_abs_x2<DType::bf16>(max, *pairs[i]);
      int exponent = static_cast<int>(::max(max >> 23, max >> 7 & 0xff));
#pragma unroll
      for (int i = 1; i < 32; i *= 2) exponent = ::max(exponent, __shfl_xor_sync(kAll, exponent, i));
      exponent = ::max(exponent, kLeastExponent);
      const float factor = __uint_as_float(static_cast<unsigned>(2 * 127 + kLargestOfF16 - exponent) << 23);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        *pairs[i] = ptx::cvt_pack<DType::f16>(__uint_as_float(*pairs[i] << 16) * factor,
                                              __uint_as_float(*pairs[i] & 0xffff0000) * factor);
      if (lane < kChunks) ptx::st_shared_v4(chunk, words);
      if (lane == 0) ptx::st_shared_u32(sums_of(0, row), static_cast<unsigned>(exponent));
    }
  }
  __device__ __forceinline__ void take_scales() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned exponent = ptx::ld_shared_u32(sums_of(0, lane % 4 * 2 + r));
      scales[r] = this->scale.times(__uint_as_float((exponent - kLargestOfF16) << 23));
    }
  }

  // S^T of this warp's keys, as two sums, of every other step: a product waits for the one before it in its sum.
  __device__ __forceinline__ void multiply_queries(KeyScores& scores, const Queries& q, unsigned slot,
                                                   int first_key) const {
    constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, qk_columns(C));
    const Panels<swizzle_of_keys(C, qk_columns(C)), C.tile_n, kSpan> panels{slot};
    float odd[kKeys / 4];
#pragma unroll
    for (int v = 0; v < kKeys / 4; ++v) scores[v] = odd[v] = 0.0f;
    unsigned own[kKeys / 16];
#pragma unroll
    for (int group = 0; group < kKeys / 16; ++group)
      own[group] = panels.chunk(first_key + 16 * group + lane / 8 % 2 * 8 + lane % 8, lane / 16);
#pragma unroll
    for (int chunk = 0; chunk < kChunksOfK; chunk += 2) {
#pragma unroll
      for (int group = 0; group < kKeys / 16; ++group) {
        unsigned words[4];
        ptx::ldmatrix_x4(panels.further(own[group], chunk), words);
        if constexpr (kWidens) {
          ptx::mma_m16n8k16_e4m3(scores + 4 * group, words[0], words[1], q[chunk][0], q[chunk][1]);
          ptx::mma_m16n8k16_e4m3(odd + 4 * group, words[2], words[3], q[chunk + 1][0], q[chunk + 1][1]);
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
  __device__ __forceinline__ void multiply_values(Outputs& output, const unsigned (&p)[kKeys / 16][2], unsigned slot,
                                                  int first_key) const {
    constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, v_columns(C));
    constexpr DType kType = p_dtype(C);
    const Panels<swizzle_of_keys(C, v_columns(C)), C.tile_n, kSpan> panels{slot};
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const unsigned own = panels.chunk(first_key + 16 * step + lane % 16, lane / 16);
#pragma unroll
      for (int chunk = 0; chunk < kChunksOfV; chunk += 2) {
        unsigned words[4];
        ptx::ldmatrix_x4_trans(panels.further(own, chunk), words);
        if constexpr (kWidens) {
#pragma unroll
          for (int i = 0; i < 2; ++i)
            ptx::mma_m16n8k16_turned_e4m3(output[chunk + i], words[2 * i], words[2 * i + 1], p[step][0], p[step][1]);
        } else {
          const unsigned a[4] = {words[0], words[2], words[1], words[3]};
          ptx::mma_m16n8k16<kType>(output[chunk / 2], a, p[step][0], p[step][1]);
        }
      }
    }
  }

  // As fix_up() of Consumer, for this warp's keys.
  __device__ __forceinline__ void fix_up_own(KeyScores& scores, int first_key) const {
    const int first_of_block = this->first_key + (this->blocks - 1) * C.tile_n;
    const bool is_applied = scale_of_row(0).is_applied() || scale_of_row(1).is_applied();
    if (!is_applied && !this->has_hidden(first_of_block, this->first_row)) return;
    const int own_key = first_of_block + first_key + lane / 4;
    const int row = this->first_row + lane % 4 * 2;
    const int limits[2] = {visible_end<C>(this->p, this->lengths(), row) - own_key,
                           visible_end<C>(this->p, this->lengths(), row + 1) - own_key};
    int begins[2] = {0, 0};
    if constexpr (hides_first_keys(C.facts)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) begins[r] = visible_keys<C>(this->p, this->lengths(), row + r).begin - own_key;
    }
#pragma unroll
    for (int v = 0; v < kKeys / 4; ++v) {
      const bool is_before = hides_first_keys(C.facts) && v / 2 * 8 < begins[v % 2];
      const bool is_seen = v / 2 * 8 < limits[v % 2] && !is_before;
      scores[v] = is_seen ? scores[v] * scale_of_row(v % 2).factor() : ptx::minus_infinity();
    }
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

  template <BarrierRow kFull>
  __device__ __forceinline__ void wait_for() const {
    const auto& at = kIsOfStep ? ready : ring;
    ptx::mbarrier_wait_parity(barrier_at<kFull>(this->smem, at.slot()), at.parity());
  }
  template <BarrierRow kEmpty>
  __device__ __forceinline__ void give_back() const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kEmpty>(this->smem, ring.slot()));
  }

  // Scores of keys from `first_key` of the block on, as P of the second product.
  template <class Released>
  __device__ __forceinline__ void find_probabilities(const Queries& q, Outputs& output, unsigned (&p)[kKeys / 16][2],
                                                     int first_key, const Released& when_read) {
    KeyScores scores;
    multiply_queries(scores, q, this->smem + kRingOfK.offset + ring.slot() * kRingOfK.slot_bytes, first_key);
    when_read();
    fix_up_own(scores, first_key);
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
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i)
      p[i / 2][i % 2] = ptx::movmatrix_trans(ptx::cvt_pack<p_dtype(C)>(scores[2 * i], scores[2 * i + 1]));
  }

  __device__ __forceinline__ unsigned v_slot_at_hand() const {
    return this->smem + kRingOfV.offset + ring.slot() * kRingOfV.slot_bytes;
  }
  __device__ __forceinline__ void step(const Queries& q, Outputs& output) {
    unsigned p[kKeys / 16][2];
    wait_for<kIsOfStep ? kBarriers.raw_k_ready : kRingOfK.full>();
    find_probabilities(q, output, p, warp * kKeys, [&] {
      end_reads();
      give_back<kRingOfK.empty>();
    });
    wait_for<kIsOfStep ? kBarriers.raw_v_ready : kRingOfV.full>();
    multiply_values(output, p, v_slot_at_hand(), warp * kKeys);
    end_reads();
    give_back<kRingOfV.empty>();
    advance();
  }
  // A block whose groups of 16 keys four warps cannot share equally: who has one more is another warp each time.
  __device__ __forceinline__ void step_by_groups(const Queries& q, Outputs& output) {
    wait_for<kBarriers.raw_k_ready>();
#pragma unroll 1
    for (int first = (warp + this->blocks) % kConsumerWarps * 16; first < C.tile_n; first += 16 * kConsumerWarps) {
      unsigned p[kKeys / 16][2];
      find_probabilities(q, output, p, first, [] {});
      wait_for<kBarriers.raw_v_ready>();
      multiply_values(output, p, v_slot_at_hand(), first);
    }
    end_reads();
    give_back<kRingOfK.empty>();
    give_back<kRingOfV.empty>();
    advance();
  }
  __device__ __forceinline__ void advance() {
    ring.advance();
    if constexpr (kIsOfStep) ready.advance();
  }

  static __device__ __forceinline__ void sync_warps() {
    ptx::barrier_sync(kIsOfStep ? kBarrierOfConsumers : kBarrierOfWarpgroup, 32 * kWarps);
  }
  __device__ __forceinline__ int number() const { return this->warpgroup * kConsumerWarps + warp; }

  // A tile's end: each warp leaves its rows, and adds up and stores every fourth of them. Beside tiles by wgmma they
  // pass through Q's slot, where no room is left between rows: four rows that lanes write at once have their bytes in
  // different places.
  __device__ __forceinline__ unsigned sums_of(int of_warp, int row) const {
    return this->smem + kLayout.joined.offset + 8 * (of_warp * kRows + row);
  }
  __device__ __forceinline__ unsigned row_of(int of_warp, int row) const {
    if constexpr (kIsOfStep) return first_q_slot() + (of_warp * kRows + row) * 4 * v_columns(C);
    return this->smem + kLayout.joined.offset + joined_sums_bytes(C) + (of_warp * kRows + row) * joined_row_bytes(C);
  }
  static __device__ __forceinline__ int byte_of(int row, int byte) {
    return kIsOfStep ? byte ^ row / 2 % 4 * 32 : byte;
  }

  __device__ __forceinline__ void leave_rows(const Outputs& output) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_eight(this->rows.sum[r]);
      const int row = lane % 4 * 2 + r;
      if (lane < 4) ptx::st_shared_v2_f32(sums_of(number(), row), this->rows.reference[r], sum);
      const unsigned to = row_of(number(), row);
#pragma unroll
      for (int i = 0; i < kTilesOfO; ++i) {
        if constexpr (kWidens) {
          ptx::st_shared_v2_f32(to + byte_of(row, 64 * i + lane / 4 * 8), output[i][r], output[i][2 + r]);
        } else {
          ptx::st_shared_f32(to + 64 * i + lane / 4 * 4, output[i][r]);
          ptx::st_shared_f32(to + 64 * i + 32 + lane / 4 * 4, output[i][2 + r]);
        }
      }
    }
  }
  // The row's reference and sum of all warps' keys, as this thread's first row, and the weights of their columns.
  __device__ __forceinline__ void join_sums(int row, float (&weights)[kWarps]) {
    float of_warp[kWarps];
    this->rows = RowStatistics{};
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      unsigned bits, sum;
      ptx::ld_shared_v2(sums_of(i, row), bits, sum);
      weights[i] = __uint_as_float(bits);
      of_warp[i] = __uint_as_float(sum);
      this->rows.reference[0] = fmaxf(this->rows.reference[0], weights[i]);
    }
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      weights[i] = ptx::ex2(weights[i] - this->rows.subtrahend(0));
      this->rows.sum[0] += of_warp[i] * weights[i];
    }
  }
  // Beside tiles by wgmma, where kernels compile the longest: a lane has what one warp left, and its weight.
  __device__ __forceinline__ float join_sums_by_lanes(int row) {
    unsigned bits = __float_as_uint(ptx::minus_infinity()), of_warp = 0;
    if (lane < kWarps) ptx::ld_shared_v2(sums_of(lane, row), bits, of_warp);
    float max = __uint_as_float(bits);
#pragma unroll
    for (int i = 1; i < kWarps; i *= 2) max = fmaxf(max, __shfl_xor_sync(kAll, max, i));
    this->rows.reference[0] = __shfl_sync(kAll, max, 0);
    const float weight = ptx::ex2(__uint_as_float(bits) - this->rows.subtrahend(0));
    float sum = __uint_as_float(of_warp) * weight;
#pragma unroll
    for (int i = 1; i < kWarps; i *= 2) sum += __shfl_xor_sync(kAll, sum, i);
    this->rows.sum[0] = __shfl_sync(kAll, sum, 0);
    return weight;
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

  // What a joined row of O is multiplied with.
  __device__ __forceinline__ float factor_of(const TileIndex& tile, int own) {
    float factor[2];
    if constexpr (!kIsOfStep) {
      this->finish_rows(tile, factor);
      return factor[0];
    }
    if (is_part<C>(tile)) return this->of_values;
    float whole = this->rows.sum[0];
    if (has_sink(C.facts) && this->p.sink != nullptr) {
      const int head = head_of<C>(this->p, tile).head * C.pack_gqa + own % C.pack_gqa;
      whole += attention::sink_share(this->p.sink[head], this->rows.subtrahend(0));
    }
    return whole == 0.0f ? 0.0f : ptx::rcp(whole) * this->of_values;
  }

  __device__ __forceinline__ void finish(const TileIndex& tile, const Outputs& output, bool is_first) {
    if (!is_first) sync_warps();  // what the tile before left has been read, or Q
    leave_rows(output);
    sync_warps();
    const int rows = min(rows_of_tile_head<C>(this->p, tile) - tile.m * C.tile_m, kRows);
#pragma unroll 1
    for (int row = number(); row < rows; row += kWarps) {
      const int own = tile.m * C.tile_m + row;
      [[maybe_unused]] float weights[kWarps], weight = 0;
      if constexpr (kIsOfStep) {
        weight = join_sums_by_lanes(row);
      } else {
        join_sums(row, weights);
      }
      const float factor = factor_of(tile, own);
      if (lane == 0) store_statistic<C>(this->p, tile, this->rows, 0, own);
      char* const to = row_to_store<C>(this->p, tile, own);
      constexpr int kCopies = kIsOfStep ? 1 : kWarps;
#pragma unroll kCopies
      for (int first = 0; first < o_columns(C); first += 128) {
        const int column = first + 4 * lane;
        const bool is_there = o_columns(C) % 128 == 0 || column < o_columns(C);
        if (!kIsOfStep && !is_there) continue;  // else all lanes have weights that others read
        const int byte = byte_of(row, 4 * (is_there ? column : 0));
        float sums[4] = {};
#pragma unroll kCopies
        for (int i = 0; i < kWarps; ++i) {
          float four[4];
          ptx::ld_shared_v4_f32(row_of(i, row) + byte, four);
          const float of_warp = kIsOfStep ? __shfl_sync(kAll, weight, i) : weights[i];
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[j] = fmaf(four[j], of_warp, sums[j]);
        }
        if (!is_there) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[j] *= factor;
        store_columns_of(tile, to, column, sums);
      }
    }
  }

  static __device__ __forceinline__ void clear(Outputs& output) {
#pragma unroll
    for (int i = 0; i < kTilesOfO; ++i)
#pragma unroll
      for (int v = 0; v < 4; ++v) output[i][v] = 0.0f;
  }

  // A step's kernel: tiles of few rows from raw slots, others by wgmma, whose blocks of the ring widening warps take.
  // Phases of the ring that go by beside these a consumer does not see: what it waits for are the ready ones' barriers.
  // Where it is in both rings the tile's message says.
  __device__ __forceinline__ void run_step() {
    if constexpr (C.q_stages == 2) {
      this->run_joined(RawTiles{*this});
      return;
    }
    RegistersOf<C>::clear_probabilities();
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0; this->schedule.has(round); round = this->schedule.next(round, tile)) {
      tile = this->schedule.at(round);
      this->begin(tile);
      if (this->schedule.is_raw()) {
        work_on_raw(tile);
      } else {
        this->work_on(tile, round);
      }
    }
  }
  struct RawTiles {
    EightRowConsumer& of;
    __device__ __forceinline__ void work_on(const TileIndex& tile) const { of.work_on_raw(tile); }
  };
  // The tile that was begun. Q's slot serves for the join, so it goes back at the end, and with it the tile's message.
  __device__ __forceinline__ void work_on_raw(const TileIndex& tile) {
    // No lane's places in slots live beside tiles by wgmma.
    const int thread = ptx::forget(static_cast<int>(threadIdx.x)) % kWarpgroupThreads;
    warp = thread / 32;
    lane = thread % 32;
    const RawPlaces<C> places = this->schedule.raw_places();
    ring = places.ring;
    ready = places.ready;
    sync_warps();  // the first warpgroup has seen Q come
    // One warpgroup alone: in registers, since more would live beside it the other way.
    constexpr bool kNarrowsSlot = kNarrows && kWarps > kConsumerWarps;
    if constexpr (kNarrowsSlot) {
      narrow_rows();
      sync_warps();
      take_scales();
    }
    Queries q;
    load_queries(q);
    if constexpr (!kNarrowsSlot) prepare(q);
    this->of_values =
        descale_of<C>(this->p, this->p.v_descale, this->p.v_descale_stride_batch, this->p.v_descale_stride_head, tile);
    this->rows = RowStatistics{};
    Outputs output;
    clear(output);
#pragma unroll 1
    for (; this->blocks > 0; --this->blocks) {
      if (ready.slot() % consumer_warpgroups(C) != this->warpgroup) {
        advance();
      } else if constexpr (C.tile_n == 16 * kConsumerWarps) {
        step(q, output);
      } else {
        step_by_groups(q, output);
      }
    }
    finish(tile, output, false);
    sync_warps();  // all have read what lies in the slots
    end_reads();
    if (lane == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.q_empty>(this->smem, this->q_index()));
    // Else they would be kept for products that overwrite O, and whose P is of no use.
    RegistersOf<C>::clear_outputs();
    if constexpr (C.q_stages == 2) RegistersOf<C>::clear_probabilities();
  }

  __device__ __forceinline__ void run() {
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0; this->schedule.has(round); round = this->schedule.next(round, tile)) {
      tile = this->schedule.at(round);
      Queries q;
      begin_shared<C>(*this, tile, q, round);
      Outputs output;
      clear(output);
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
__device__ __forceinline__ void consume_step(const Params& p, const typename ConsumerSchedule<C>::Type& schedule,
                                             unsigned smem) {
  EightRowConsumer<C> consumer{{p, schedule, smem}};
  if (consumer.warpgroup == consumer_warpgroups(C) - 1) consumer.pass_turn();  // the first warpgroup begins
  consumer.run_step();
}

template <Config C>
__device__ __forceinline__ void consume_eight_rows(const Params& p, const Schedule<C>& schedule, unsigned smem) {
  EightRowConsumer<C> consumer{{p, schedule, smem}};
  consumer.run();
}

}  // namespace tessera::fmha
