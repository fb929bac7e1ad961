// A warpgroup that multiplies: every tile of keys in its turn, by all heads of a tile of queries.
//
// Of an accumulator a lane has rows g and g + 8 of its warp's 16 keys, g = lane / 4, and of every eight columns two:
// 2 (lane % 4) and the next, with wgmma and mma.sync alike. So a lane adds up a quarter of a query's heads, for two
// keys, and then four lanes exchange what they have: each keeps a part of the sums and gives the others away.
#pragma once

#include "common/ring.cuh"
#include "indexer/producer.cuh"
#include "indexer/ranges.cuh"
#include "indexer/store_score.cuh"
#include "indexer/widened.cuh"
#include "ptx/address.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/math.cuh"
#include "ptx/matrix.cuh"
#include "ptx/max.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"
#include "ptx/mma_8_bit.cuh"
#include "ptx/mma_block_scale.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/wgmma.cuh"
#include "spec/indexer.h"
#include "spec/matrix_descriptor.h"

namespace tessera::indexer {

TESSERA_HD constexpr int power_of_two(int n) { return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2); }

// Sums of a lane before the exchange: query i's of rows g and g + 8 at 2 i and 2 i + 1; and behind it.
template <Config C>
inline constexpr int kSums = 2 * power_of_two(C.tile_q);
template <Config C>
inline constexpr int kKept = kSums<C> < 4 ? 1 : kSums<C> / 4;
template <Config C>
inline constexpr int kKeptQueries = kKept<C> < 2 ? 1 : kKept<C> / 2;

// Of eight columns a lane's two weights, the second halved: see positive().
__device__ __forceinline__ void load_weights(unsigned from, int i, float (&two)[2]) {
  unsigned low, high;
  ptx::ld_shared_v2(from + 32 * i, low, high);
  two[0] = __uint_as_float(low);
  two[1] = 0.5f * __uint_as_float(high);
}

// What a lane has of a tile of queries. Weights stay in registers where holds_weights(); mma.sync's columns are a loop,
// which reads them where they lie.
template <Config C>
struct Queries {
  float weights[holds_weights(C) ? columns_of_tile(C) / 8 : 1][2];
  unsigned weights_in_shared;
  unsigned scales_in_shared;  // mxfp4 as it is: those of the lane's column of eight, the quad's
  Range ranges[kKeptQueries<C>];
  unsigned char* rows[kKeptQueries<C>];  // of scores, so that a key's place is that of its number

  __device__ __forceinline__ void load(const Params& p, unsigned smem, int slot) {
    const int member = static_cast<int>(threadIdx.x) % 4;
    weights_in_shared = smem + smem_layout(C).weights + slot * weights_slot_bytes(C) + 8 * member;
    scales_in_shared = smem + smem_layout(C).q_scales + slot * weights_slot_bytes(C) + threadIdx.x % kWarp / 4 * 4;
    if constexpr (holds_weights(C)) {
#pragma unroll
      for (int i = 0; i < columns_of_tile(C) / 8; ++i) load_weights(weights_in_shared, i, weights[i]);
    }
    const Ranges seen = ranges_of_slot<C>(smem, slot);
    const int first = seen.first_query();
#pragma unroll
    for (int i = 0; i < kKeptQueries<C>; ++i) {
      const int query = first_kept() / 2 + i;
      // The last of a number that is no power of two stand for none.
      ranges[i] = query < C.tile_q ? seen.of_query(query) : Range{};
      rows[i] = static_cast<unsigned char*>(p.scores);
      if (query < C.tile_q) rows[i] += (first + query) * p.scores_stride_m * dtype_bytes(C.score_dtype);
      if constexpr (C.score_columns == ScoreColumns::compressed)
        rows[i] -= static_cast<long long>(ranges[i].begin) * dtype_bytes(C.score_dtype);
      rows[i] = ptx::forget(rows[i]);
    }
  }
  // Which sum a lane's first is, after the exchange.
  static __device__ __forceinline__ int first_kept() {
    const int member = static_cast<int>(threadIdx.x) % 4;
    return kSums<C> == 2 ? member / 2 : member * kKept<C>;
  }
};

// max(x, 0) of a lane's first column of eight, twice that of the second, whose weight is halved: maxima are taken by
// one unit, at half the speed of an addition by another, so that both together are done sooner. Neither loses a NaN.
__device__ __forceinline__ float positive(int column, float x) {
  return column == 0 ? ptx::max_nan(x, 0.0f) : x + fabsf(x);
}

// sums += weights max(products, 0) of eight columns, for rows g and g + 8.
__device__ __forceinline__ void add_heads(const float (&weights)[2], const float* products, float* sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 2; ++i) sums[half] = fmaf(weights[i], positive(i, products[2 * half + i]), sums[half]);
}

// The scale of one of a warp's 16 keys, or its four scales.
template <Config C>
__device__ __forceinline__ unsigned word_of_key(unsigned slot, int key) {
  key += static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16;
  // Runs of a page's keys may have room between them.
  if constexpr (runs(C) > 1) key = key / keys_of_run(C) * scales_pitch(C) + key % keys_of_run(C);
  return ptx::ld_shared_u32(slot + 4 * static_cast<unsigned>(key));
}

// A warp's 16 of the tile's keys, as the first operand of each step.
template <Config C>
__device__ __forceinline__ void load_keys_mma(unsigned keys, unsigned scales, unsigned (&a)[steps(C)][4]) {
  if constexpr (widens(C)) {
    const int row = static_cast<int>(threadIdx.x) % kWarp / 4;
    load_keys<C>(keys, {word_of_key<C>(scales, row), word_of_key<C>(scales, row + 8)}, a);
  } else {
    const unsigned lane = threadIdx.x % kWarp, row = threadIdx.x / kWarp % 4 * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < steps(C); ++step)
      ptx::ldmatrix_x4(swizzle_address(swizzle(C), keys + row * row_bytes(C) + 32 * step + lane / 16 * 16), a[step]);
  }
}

// Where a lane reads the second operand of step `step` from, and of the next: eight columns of queries from `column`
// on.
template <Config C>
__device__ __forceinline__ unsigned columns_address(unsigned smem, unsigned q, int column, int step) {
  const unsigned lane = threadIdx.x % kWarp, row = static_cast<unsigned>(column) + lane % 8;
  if constexpr (widens(C)) {
    return swizzle_address(Swizzle::b128, wide_step<C>(smem, static_cast<int>(row), step) + lane / 8 * 16);
  } else {
    return swizzle_address(swizzle(C), q + row * row_bytes(C) + 32 * step + lane / 8 * 16);
  }
}

// Steps from kStep on: the bytes of scales are part of an instruction.
template <Config C, int kStep = 0>
__device__ __forceinline__ void multiply_steps(float (&d)[4], const unsigned (&a)[steps(C)][4],
                                               const unsigned (&b)[steps(C)][2], unsigned of_keys, unsigned of_heads) {
  if constexpr (kStep < steps(C)) {
    if constexpr (widens(C)) {
      ptx::mma_m16n8k16<DType::bf16>(d, a[kStep], b[kStep][0], b[kStep][1]);
    } else if constexpr (is_fp4(C)) {
      ptx::mma_block_scale<OperandType::mxfp4, OperandType::mxfp4, 2 * kStep, 0, 0>(d, a[kStep], b[kStep][0],
                                                                                    b[kStep][1], of_keys, of_heads);
    } else {
      ptx::mma_m16n8k32<DType::e4m3, DType::e4m3>(d, a[kStep], b[kStep][0], b[kStep][1]);
    }
    multiply_steps<C, kStep + 1>(d, a, b, of_keys, of_heads);
  }
}

// Of the tile's keys in shared memory, a warp's 16. scales: the slot's.
template <Config C>
__device__ __forceinline__ void multiply_mma(unsigned smem, unsigned keys, unsigned scales, unsigned q,
                                             const Queries<C>& queries, float (&sums)[kSums<C>]) {
  constexpr bool kIsScaled = is_fp4(C) && !widens(C);
  const unsigned lane = threadIdx.x % kWarp;
  unsigned a[steps(C)][4], of_keys = 0, of_heads = 0;
  load_keys_mma<C>(keys, scales, a);
  // Of a quad the first thread has the scales of row g, the second those of row g + 8.
  if constexpr (kIsScaled) of_keys = word_of_key<C>(scales, static_cast<int>(lane / 4 + lane % 2 * 8));
#pragma unroll
  for (int query = 0; query < C.tile_q; ++query) {
    float two[2] = {};
#pragma unroll(C.tile_q <= 2 ? 4 : 1)  // more at a time do not fit into registers
    for (int head = 0; head < C.heads / 8; ++head) {
      const int column = query * C.heads / 8 + head;
      float d[4] = {}, weights[2];
      unsigned b[steps(C)][2];
      if constexpr (steps(C) == 1) {
        ptx::ldmatrix_x2(columns_address<C>(smem, q, 8 * column, 0), b[0][0], b[0][1]);
      } else {
#pragma unroll
        for (int step = 0; step < steps(C); step += 2) {
          unsigned matrices[4];
          ptx::ldmatrix_x4(columns_address<C>(smem, q, 8 * column, step), matrices);
          b[step][0] = matrices[0];
          b[step][1] = matrices[1];
          b[step + 1][0] = matrices[2];
          b[step + 1][1] = matrices[3];
        }
      }
      load_weights(queries.weights_in_shared, column, weights);
      if constexpr (kIsScaled) of_heads = ptx::ld_shared_u32(queries.scales_in_shared + 32 * column);
      multiply_steps<C>(d, a, b, of_keys, of_heads);
      add_heads(weights, d, two);
    }
    sums[2 * query] = two[0];
    sums[2 * query + 1] = two[1];
  }
}

// Four lanes add up: a lane keeps the half that has its bit, first of bit 1, then of bit 0.
template <Config C>
__device__ __forceinline__ void exchange(const float (&sums)[kSums<C>], float (&kept)[kKept<C>]) {
  constexpr int kHalf = kSums<C> / 2;
  const bool is_upper = (threadIdx.x & 2) != 0, is_odd = (threadIdx.x & 1) != 0;
  float half[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float other = __shfl_xor_sync(0xffffffffu, is_upper ? sums[i] : sums[kHalf + i], 2);
    half[i] = (is_upper ? sums[kHalf + i] : sums[i]) + other;
  }
  if constexpr (kHalf == 1) {
    kept[0] = half[0] + __shfl_xor_sync(0xffffffffu, half[0], 1);
  } else {
#pragma unroll
    for (int i = 0; i < kKept<C>; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, is_odd ? half[i] : half[kKept<C> + i], 1);
      kept[i] = (is_odd ? half[kKept<C> + i] : half[i]) + other;
    }
  }
}

// bf16 of a whole query's rows g and g + 8: lanes of rows g and g + 1, g even, exchange one each, so that a lane stores
// two neighbours and a warp 32 bytes of a query at once. 16 bits a lane are halves of a sector, stored one by one.
template <Config C>
__device__ __forceinline__ void store_pairs(const Queries<C>& queries, int first_key, const float (&scales)[2],
                                            const float (&kept)[kKept<C>]) {
  const bool is_odd = (threadIdx.x & 4) != 0;
  const int key = is_odd ? first_key + 7 : first_key;  // row g - 1 + 8 and the next
#pragma unroll
  for (int i = 0; i < kKept<C> / 2; ++i) {
    const unsigned own = ptx::cvt_pack<DType::bf16>(kept[2 * i] * scales[0], kept[2 * i + 1] * scales[1]);
    const unsigned other = __shfl_xor_sync(0xffffffffu, own, 4);
    const unsigned pair = is_odd ? ptx::prmt(other, own, 0x7632) : ptx::prmt(own, other, 0x5410);
    const Range& range = queries.ranges[i];
    unsigned char* const to = queries.rows[i] + static_cast<long long>(key) * 2;
    const bool has_first = range.begin <= key && key < range.end;
    const bool has_second = range.begin <= key + 1 && key + 1 < range.end;
    if (has_first && has_second && (reinterpret_cast<unsigned long long>(to) & 2) == 0) {
      ptx::st_global_u32(to, pair);
    } else {
      if (has_first) ptx::st_global_u16(to, pair & 0xffff);
      if (has_second) ptx::st_global_u16(to + 2, pair >> 16);
    }
  }
}

// first_key: of the lane's row g. scales: of rows g and g + 8.
template <Config C>
__device__ __forceinline__ void store_scores(const Queries<C>& queries, int first_key, const float (&scales)[2],
                                             const float (&sums)[kSums<C>]) {
  float kept[kKept<C>];
  exchange<C>(sums, kept);
  if constexpr (C.score_dtype == DType::bf16 && kKept < C >> 1) {
    store_pairs<C>(queries, first_key, scales, kept);
    return;
  }
  const int first = Queries<C>::first_kept();
  if (kSums<C> == 2 && (threadIdx.x & 1) != 0) return;  // both lanes have the sum
#pragma unroll
  for (int i = 0; i < kKept<C>; ++i) {
    const int half = kKept<C> == 1 ? first % 2 : i % 2;
    const Range& range = queries.ranges[i / 2];
    const int key = first_key + 8 * half;
    if (range.begin <= key && key < range.end)
      store_score<C>(queries.rows[i / 2], key, kept[i] * (half == 0 ? scales[0] : scales[1]));
  }
}

// Scales of a lane's rows g and g + 8. A lane loads that of one row, and lanes exchange them: what a shuffle has taken
// has been read when the slot is given back, without a fence, which would wait for stores of scores too.
template <Config C>
__device__ __forceinline__ void load_scales(unsigned slot, float (&scales)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float scale = __uint_as_float(word_of_key<C>(slot, lane % 16));
  scales[0] = __shfl_sync(0xffffffffu, scale, lane / 4);
  scales[1] = __shfl_sync(0xffffffffu, scale, lane / 4 + 8);
}

// What a warp has read may be overwritten by TMA: its products have taken what they read.
__device__ __forceinline__ void release(unsigned empty) {
  __syncwarp();
  if (ptx::elect_sync()) ptx::mbarrier_arrive(empty);
}

// Products of a tile of keys with all columns are begun; the accumulators are not to be touched.
template <Config C>
__device__ __forceinline__ void begin_wide_products(unsigned smem, const unsigned (&a)[steps(C)][4],
                                                    float (&d)[columns_of_tile(C) / 2]) {
  constexpr int kN = columns_of_tile(C);
  unsigned long long b[steps(C)];
#pragma unroll
  for (int i = 0; i < steps(C); ++i)
    b[i] = advance_descriptor(k_major_descriptor(smem + smem_layout(C).wide, kN, Swizzle::b128),
                              k_major_step_bytes(i, kN, Swizzle::b128));
  ptx::wgmma_fence();
  ptx::Wgmma<kN, DType::bf16, true, false, steps(C)>::begin(d, a, b);
  ptx::wgmma_commit_group();
}
template <Config C>
__device__ __forceinline__ void begin_products(unsigned keys, unsigned q, float (&d)[columns_of_tile(C) / 2]) {
  constexpr int kN = columns_of_tile(C);
  unsigned long long a[steps(C)], b[steps(C)];
#pragma unroll
  for (int i = 0; i < steps(C); ++i) {
    a[i] = advance_descriptor(k_major_descriptor(keys, kTileKeys, swizzle(C)), 32 * i);
    b[i] = advance_descriptor(k_major_descriptor(q, kN, swizzle(C)), 32 * i);
  }
  ptx::wgmma_fence();
  ptx::Wgmma<kN, DType::e4m3, false, false, steps(C)>::begin(d, a, b);
  ptx::wgmma_commit_group();
}
template <Config C>
__device__ __forceinline__ void end_products(float (&d)[columns_of_tile(C) / 2]) {
  ptx::wgmma_wait_group<0>();
  ptx::Wgmma<columns_of_tile(C), widens(C) ? DType::bf16 : DType::e4m3, widens(C), false, steps(C)>::hold(d);
}

// The tile in a slot of the ring, which is given back when it has been read.
template <Config C>
__device__ __forceinline__ void score_tile(const Queries<C>& queries, unsigned smem, int slot, unsigned q,
                                           int first_key) {
  const int row = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16 + static_cast<int>(threadIdx.x) % kWarp / 4;
  const unsigned empty = common::empty_behind<C.stages>(key_barrier<C>(smem, slot));
  const unsigned keys = smem + smem_layout(C).keys + slot * key_slot_bytes(C);
  const unsigned from = smem + smem_layout(C).scales + slot * scales_slot_bytes(C);
  float sums[kSums<C>] = {};
  float scales[2] = {1.0f, 1.0f};
  if constexpr (uses_wgmma(C)) {
    float d[columns_of_tile(C) / 2];
    if constexpr (widens(C)) {
      unsigned a[steps(C)][4];
      load_keys_mma<C>(keys, from, a);
      ptx::fence_proxy_async_shared();
      release(empty);
      begin_wide_products<C>(smem, a, d);
      end_products<C>(d);
    } else {
      begin_products<C>(keys, q, d);
      load_scales<C>(from, scales);
      end_products<C>(d);
      release(empty);
    }
#pragma unroll
    for (int head = 0; head < C.heads / 8; ++head)  // of all queries in turn: sums that do not wait for each other
#pragma unroll
      for (int query = 0; query < C.tile_q; ++query) {
        const int column = query * C.heads / 8 + head;
        if constexpr (holds_weights(C)) {
          add_heads(queries.weights[column], d + 4 * column, sums + 2 * query);
        } else {
          float weights[2];
          load_weights(queries.weights_in_shared, column, weights);
          add_heads(weights, d + 4 * column, sums + 2 * query);
        }
      }
  } else {
    if constexpr (!is_fp4(C)) load_scales<C>(from, scales);
    multiply_mma<C>(smem, keys, from, q, queries, sums);
    ptx::fence_proxy_async_shared();  // products may be done behind the arrival, which waits for no load of theirs
    release(empty);
  }
  store_scores<C>(queries, first_key + row, scales, sums);
}

// A consumer has every tile of keys in its turn, and so the same slots of the ring: stages are a multiple of consumers.
template <Config C>
__device__ __forceinline__ void consume(const Params& p, unsigned smem, int consumer) {
  common::RingPosition<kQuerySlots> of_q;
  int slot = consumer, turn = consumer;  // turn: of the next tile of queries, the first tile of keys that is its own
  unsigned parity = 0;
  for (;;) {
    const unsigned full = query_barrier<C>(smem, of_q.slot);
    ptx::mbarrier_wait_parity(full, of_q.parity);
    const Ranges seen = ranges_of_slot<C>(smem, of_q.slot);
    const int tiles = seen.tiles();
    if (tiles == 0) break;
    if constexpr (widens(C)) widen_queries<C>(smem, of_q.slot);
    Queries<C> queries;
    queries.load(p, smem, of_q.slot);
    const int first_key = seen.first_key();
    const unsigned q = smem + smem_layout(C).q + of_q.slot * q_slot_bytes(C);
#pragma unroll 1
    for (; turn < tiles; turn += C.consumers) {
      ptx::mbarrier_wait_parity(key_barrier<C>(smem, slot), parity);
      score_tile<C>(queries, smem, slot, q, first_key + turn * kTileKeys);
      slot += C.consumers;
      if (slot >= C.stages) {
        slot -= C.stages;
        parity ^= 1;
      }
    }
    turn -= tiles;
    ptx::fence_proxy_async_shared();  // ends the reads of weights and ranges
    release(common::empty_behind<kQuerySlots>(full));
    of_q.advance();
  }
}

}  // namespace tessera::indexer
