// A warpgroup that takes sums: every tile of keys in its turn. A thread has a lane of Tensor Memory, one key, and adds
// up what its columns, heads of queries in turn, are worth; weights lie in shared memory, the same for all threads.
#pragma once

#include "common/ring.cuh"
#include "indexer/producer.cuh"
#include "indexer/ranges.cuh"
#include "indexer/store_score.cuh"
#include "indexer_tcgen05/multiplier.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/max.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/indexer_tcgen05.h"

namespace tessera::indexer_tcgen05 {

// A warp has read what another may overwrite.
__device__ __forceinline__ void release(unsigned empty) {
  __syncwarp();
  if (ptx::elect_sync()) ptx::mbarrier_arrive(empty);
}

// The scale of a thread's key. Lanes load each other's and exchange them: what a shuffle has taken has been read when
// the slot is given back, without a fence, which would wait for stores of scores too.
template <Config C>
__device__ __forceinline__ float load_scale(unsigned scales) {
  int key = static_cast<int>(threadIdx.x) % kLanes ^ 1;
  if constexpr (runs(C) > 1) key = key / keys_of_run(C) * scales_pitch(C) + key % keys_of_run(C);
  const unsigned other = ptx::ld_shared_u32(scales + 4 * static_cast<unsigned>(key));
  return __uint_as_float(__shfl_xor_sync(0xffffffffu, other, 1));
}

// Sums of a query's heads, every fourth to a sum of its own, so that they do not wait for each other. Of odd columns
// twice max(x, 0), as x + abs(x): maxima are taken by one unit, at half the speed of an addition by another. Neither
// loses a NaN.
struct Heads {
  float sums[4] = {};

  __device__ __forceinline__ void add(int column, float weight, float x) {
    const float positive = column % 2 == 0 ? ptx::max_nan(x, 0.0f) : x + fabsf(x);
    sums[column % 4] = fmaf(weight, positive, sums[column % 4]);
  }
  __device__ __forceinline__ float total() const { return sums[0] + sums[2] + 0.5f * (sums[1] + sums[3]); }
};

// A thread's key, its scale, and where scores go.
template <Config C>
struct Key {
  const Params& p;
  const Ranges seen;
  const int first_query;
  const int key;
  const float scale;

  __device__ __forceinline__ void store(int query, float sum) const {
    const Range range = seen.of_query(query);
    if (key < range.begin || key >= range.end) return;
    auto* row =
        static_cast<unsigned char*>(p.scores) + (first_query + query) * p.scores_stride_m * dtype_bytes(C.score_dtype);
    const int column = C.score_columns == ScoreColumns::compressed ? key - range.begin : key;
    store_score<C>(row, column, sum * scale);
  }
};

// The tile in an accumulator, which is given back when its last columns have been loaded. `from`: the warp's lanes.
template <Config C>
__device__ __forceinline__ void take_sums(const Key<C>& key, unsigned weights, unsigned from, unsigned empty) {
  constexpr int kColumns = chunk_columns(C), kChunks = columns_of_tile(C) / kColumns;
  unsigned d[2][kColumns];
  ptx::tcgen05_ld_32x32b(d[0], from);
  Heads heads;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    ptx::tcgen05_wait_ld(d[i % 2]);
    if (i + 1 < kChunks) {
      ptx::tcgen05_ld_32x32b(d[(i + 1) % 2], from + (i + 1) * kColumns);
    } else {
      ptx::tcgen05_fence_before_thread_sync();
      release(empty);
    }
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      const int column = i * kColumns + j;
      const ptx::Words4 w = ptx::ld_shared_v4(weights + 4 * column);
      heads.add(0, __uint_as_float(w.x), __uint_as_float(d[i % 2][j]));
      heads.add(1, __uint_as_float(w.y), __uint_as_float(d[i % 2][j + 1]));
      heads.add(2, __uint_as_float(w.z), __uint_as_float(d[i % 2][j + 2]));
      heads.add(3, __uint_as_float(w.w), __uint_as_float(d[i % 2][j + 3]));
      if ((column + 4) % C.heads == 0) {
        key.store(column / C.heads, heads.total());
        heads = {};
      }
    }
  }
}

// A consumer has every tile of keys in its turn, and so the same slots of the ring: stages are a multiple of consumers.
template <Config C>
__device__ __forceinline__ void consume(const Params& p, unsigned smem, unsigned tmem, int consumer) {
  constexpr SmemLayout kMap = smem_layout(C);
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  common::RingPosition<kQuerySlots> of_q;
  common::RingPosition<C.stages> ring;
  common::RingPosition<accumulators(C)> sums;
  ring.advance(consumer);
  sums.advance(consumer);
  int turn = consumer;  // of this tile of queries, the next tile of keys that is its own
  for (;;) {
    const unsigned full = query_barrier<C>(smem, of_q.slot);
    ptx::mbarrier_wait_parity(full, of_q.parity);
    const Ranges seen = ranges_of_slot<C>(smem, of_q.slot);
    const int tiles = seen.tiles();
    if (tiles == 0) break;
    const int first_key = seen.first_key() + static_cast<int>(threadIdx.x) % kLanes, first_query = seen.first_query();
    const unsigned weights = smem + kMap.weights + of_q.slot * weights_slot_bytes(C);
#pragma unroll 1
    for (; turn < tiles; turn += C.consumers) {
      const unsigned key_full = key_barrier<C>(smem, ring.slot), sums_full = sum_barrier<C>(smem, sums.slot);
      float scale = 1.0f;
      if constexpr (!is_fp4(C)) {
        ptx::mbarrier_wait_parity(key_full, ring.parity);
        scale = load_scale<C>(smem + kMap.scales + ring.slot * scales_slot_bytes(C));
      }
      ptx::mbarrier_wait_parity(sums_full, sums.parity);
      ptx::tcgen05_fence_after_thread_sync();
      release(common::empty_behind<C.stages>(key_full));
      take_sums<C>({p, seen, first_query, first_key + turn * kLanes, scale}, weights,
                   tmem + (static_cast<unsigned>(warp) * kWarp << 16) + sums.slot * loaded_columns(C),
                   common::empty_behind<accumulators(C)>(sums_full));
      ring.advance(C.consumers);
      sums.advance(C.consumers);
    }
    turn -= tiles;
    __syncwarp();                     // lanes come from stores that others had none of: one fence for all
    ptx::fence_proxy_async_shared();  // ends the reads of weights and ranges
    release(common::empty_behind<kQuerySlots>(full));
    of_q.advance();
  }
}

}  // namespace tessera::indexer_tcgen05
