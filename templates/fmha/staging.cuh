// A tile's O in the slot of its Q, which is free then: where rows of O lie, which columns a thread has of them, and
// these columns in panels of shared memory, for TMA or for the warp itself to read.
#pragma once

#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/registers.cuh"
#include "fmha/schedule.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Named barriers: 0 is __syncthreads(); turns of the warpgroups; a warpgroup among itself.
inline constexpr int kBarrierOfTurn = 1;
inline constexpr int kBarrierOfWarpgroup = 5;
inline constexpr int kBarrierOfConsumers = 9;  // of those that share a raw tile's blocks

// Rows of the tile's head.
template <Config C>
__device__ __forceinline__ int rows_of_tile_head(const Params& p, const TileIndex& tile) {
  if constexpr (!is_ragged(C.facts)) return rows_of_head<C>(p);
  if constexpr (knows_sequence(C)) return tile.queries * C.pack_gqa;
  return queries_of<C>(p, head_of<C>(p, tile).batch) * C.pack_gqa;
}
// Where the queries of the tile's sequence begin.
template <Config C>
__device__ __forceinline__ int first_query_of(const Params& p, const TileIndex& tile, const HeadIndex& at) {
  return knows_sequence(C) ? tile.first_query : first_query<C>(p, at.batch);
}
// Where a row of O begins. `first_query`: of its sequence.
template <Config C>
__device__ __forceinline__ char* o_row_of(const Params& p, const HeadIndex& at, int first_query, int row) {
  const int head = at.head * C.pack_gqa + row % C.pack_gqa;
  const int query = first_query + row / C.pack_gqa;
  return static_cast<char*>(p.o_rows) + o_element_bytes(C.facts) * (sequence_of_map<C>(at) * p.o_stride_batch +
                                                                    head * p.o_stride_head + query * p.o_stride_seqlen);
}

// Products with 8-bit V: columns of O that a thread has side by side, 4 of each 16. See spec/fmha_transposed.h.
template <Config C>
__device__ __forceinline__ ptx::Vector4 columns_of(const Accumulator<C>& output, int i, int r) {
  const float* const of_row = output + 8 * i + 2 * r;
  return {__float_as_uint(of_row[0]), __float_as_uint(of_row[4]), __float_as_uint(of_row[1]),
          __float_as_uint(of_row[5])};
}
// Products with 4-bit V: 8 of each 32, the first or the second four of them.
template <Config C>
__device__ __forceinline__ ptx::Vector4 four_of_eight(const Accumulator<C>& output, int i, int r, int half) {
  const float* const of_row = output + 16 * i + 2 * r + half;
  return {__float_as_uint(of_row[0]), __float_as_uint(of_row[4]), __float_as_uint(of_row[8]),
          __float_as_uint(of_row[12])};
}
// Columns of O from one thread's to the next one's.
template <Config C>
inline constexpr int kColumnsOfThread = has_eights(C)  ? 8
                                        : has_fours(C) ? 4
                                                       : 2;

// A thread's words of a row, of 8-bit or 4-bit V, of groups [first, end) of columns that four threads share. `put`
// takes them, and the byte at which they lie behind the first.
template <Config C, bool kIsF32, class Put>
__device__ __forceinline__ void give_columns(const Accumulator<C>& output, int r, int first, int end, const Put& put) {
  const auto packed = [](unsigned x, unsigned y) {
    return ptx::cvt_pack<o_dtype(C.facts)>(__uint_as_float(x), __uint_as_float(y));
  };
#pragma unroll
  for (int i = first; i < end; ++i) {
    if constexpr (has_eights(C)) {
      const ptx::Vector4 low = four_of_eight<C>(output, i, r, 0), high = four_of_eight<C>(output, i, r, 1);
      if constexpr (kIsF32) {
        put(128 * (i - first), low);
        put(128 * (i - first) + 16, high);
      } else {
        put(64 * (i - first),
            ptx::Vector4{packed(low.x, low.y), packed(low.z, low.w), packed(high.x, high.y), packed(high.z, high.w)});
      }
    } else {
      const ptx::Vector4 four = columns_of<C>(output, i, r);
      if constexpr (kIsF32) {
        put(64 * (i - first), four);
      } else {
        put(32 * (i - first), packed(four.x, four.y), packed(four.z, four.w));
      }
    }
  }
}

// A warpgroup's products with Q are done once all its warps are here: then its slot is free for O.
__device__ __forceinline__ void meet_warpgroup(int warpgroup) {
  ptx::barrier_sync(kBarrierOfWarpgroup + warpgroup, kWarpgroupThreads);
}
// Of rows that a warp staged, or read again: TMA reads or overwrites them next.
__device__ __forceinline__ void give_rows(unsigned barrier) {
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

// 16-bit O: stmatrix takes the fragment as it is, two 16-byte chunks of 16 rows at a time. A row's swizzle depends on
// the row alone, and the slot starts on a repeat of it: so a chunk's distance is flipped into the swizzled address, and
// panels are added. Only the row is left to compute.
template <Config C>
__device__ __forceinline__ void stage_normalized(const Accumulator<C>& output, unsigned slot) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  const int thread = ptx::forget(static_cast<int>(threadIdx.x) % kWarpgroupThreads);
  const int lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  // Without a swizzle a span is one chunk, and the lanes' two chunks lie in two panels.
  const int second = kSpan == 16 ? kRowsPerWarpgroup * kSpan : 16;
  const unsigned address = swizzle_address(C.swizzle, slot + row * kSpan + lane / 16 * second);
  if constexpr (!uses_mma_sync(C)) {
    RegistersOf<C>::stage(address);
  } else {
#pragma unroll
    for (int i = 0; i < v_columns(C) / 16; ++i) {
      unsigned packed[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int v = 8 * i + 2 * j;
        packed[j] = ptx::cvt_pack<C.facts.dtype>(output[v], output[v + 1]);
      }
      ptx::stmatrix_x4((address ^ (32 * i % kSpan)) + 32 * i / kSpan * kRowsPerWarpgroup * kSpan, packed[0], packed[1],
                       packed[2], packed[3]);
    }
  }
}

// fp32 O: the columns of one pass. Addresses as above; rows that are 8 apart have the same swizzle.
template <Config C>
__device__ __forceinline__ void stage_unnormalized(const Accumulator<C>& held, int pass, unsigned slot) {
  Accumulator<C> copy;
  const Accumulator<C>& output = values_of<C>(held, copy);
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kCount = v_columns(C) / 2 / o_passes(C);
  const int thread = ptx::forget(static_cast<int>(threadIdx.x) % kWarpgroupThreads);
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int second = kSpan == 16 ? kRowsPerWarpgroup * kSpan : 16;
  const unsigned address = swizzle_address(C.swizzle, slot + row * kSpan + thread % 4 / 2 * second + thread % 2 * 8);
#pragma unroll
  for (int v = 0; v < kCount; v += 2) {
    const int byte = 32 * (v / 4);
    const float low = pass == 0 ? output[v] : output[kCount + v];
    const float high = pass == 0 ? output[v + 1] : output[kCount + v + 1];
    ptx::st_shared_v2_f32((address ^ (byte % kSpan)) + byte / kSpan * kRowsPerWarpgroup * kSpan + v / 2 % 2 * 8 * kSpan,
                          low, high);
  }
}

// A thread's part of a row in panels of shared memory, whose first byte lies swizzled at `address`: the other ones
// follow in bits of a span that are 0 in it, or in panels behind.
template <Config C>
struct StagedRow {
  unsigned address;
  __device__ __forceinline__ unsigned at(int byte) const {
    constexpr int kSpan = swizzle_span_bytes(C.swizzle);
    return (address ^ (byte % kSpan)) + byte / kSpan * kRowsPerWarpgroup * kSpan;
  }
  __device__ __forceinline__ void operator()(int byte, const ptx::Vector4& words) const {
    ptx::st_shared_v4_f32(at(byte), __uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                          __uint_as_float(words.w));
  }
  __device__ __forceinline__ void operator()(int byte, unsigned x, unsigned y) const {
    ptx::st_shared_v2_f32(at(byte), __uint_as_float(x), __uint_as_float(y));
  }
};

// O of 8-bit or 4-bit V: the columns of one pass.
template <Config C>
__device__ __forceinline__ void stage_columns(const Accumulator<C>& output, int pass, unsigned slot) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kGroups = v_columns(C) / o_passes(C) / (4 * kColumnsOfThread<C>);
  const int thread = ptx::forget(static_cast<int>(threadIdx.x) % kWarpgroupThreads);
  const int byte = thread % 4 * kColumnsOfThread<C> * o_element_bytes(C.facts);
  const unsigned panel = slot + byte / kSpan * kRowsPerWarpgroup * kSpan + byte % kSpan;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * r;
    give_columns<C, C.facts.output == Output::unnormalized>(
        output, r, pass * kGroups, (pass + 1) * kGroups, StagedRow<C>{swizzle_address(C.swizzle, panel + row * kSpan)});
  }
}

}  // namespace tessera::fmha
