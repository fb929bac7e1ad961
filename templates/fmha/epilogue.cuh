// What becomes of a finished tile: row statistics go to global memory from the consumers; O goes through the tile's Q
// slot, where consumers stage it and one warp of the producers stores it by TMA, so that no consumer waits for the
// store.
#pragma once

#include "common/transpose_quad.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Named barriers: 0 is __syncthreads(); turns of the warpgroups; a warpgroup among itself.
inline constexpr int kBarrierOfTurn = 1;
inline constexpr int kBarrierOfWarpgroup = 5;

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
// Where the statistics of a row lie.
template <Config C>
__device__ __forceinline__ long long statistic_of(const Params& p, const TileIndex& tile, int row) {
  int head = tile.head * C.pack_gqa + row % padded_heads(C);
  int query = row / padded_heads(C);
  if constexpr (is_ragged(C.facts)) {
    const HeadIndex at = head_of<C>(p, tile);
    head = at.head * C.pack_gqa + row % C.pack_gqa;
    query += first_query_of<C>(p, tile, at);
  }
  return static_cast<long long>(head) * p.seqlen_q + query;
}

// A row's statistics: the reference maximum, the sum, LSE = maximum + ln(sum). The row is `own` of its head's, and the
// r-th of the thread's.
template <Config C>
__device__ __forceinline__ void store_statistic(const Params& p, const TileIndex& tile, const RowStatistics& rows,
                                                int r, int own) {
  const long long index = statistic_of<C>(p, tile, own);
  if constexpr (is_dealt(C)) {
    if (tile.split >= 0) {
      ptx::st_global_v2(p.partial_sums + 2 * part_row<C>(p, tile.split, own - tile.m * C.tile_m),
                        __float_as_uint(rows.reference[r]), __float_as_uint(rows.sum[r]));
      return;
    }
  } else if constexpr (is_split(C)) {
    ptx::st_global_v2(p.partial_sums + 2 * (tile.split * num_rows(p) + index), __float_as_uint(rows.reference[r]),
                      __float_as_uint(rows.sum[r]));
    return;
  }
  if (p.lse != nullptr) p.lse[index] = (rows.subtrahend(r) + ptx::lg2(rows.sum[r])) * kLn2;
  if constexpr (C.facts.output == Output::unnormalized) {
    p.row_max[index] = rows.reference[r] * kLn2;
    p.row_sum[index] = rows.sum[r];
  }
}

// One thread of four writes its rows' statistics. `row` is the thread's first.
template <Config C>
__device__ __forceinline__ void store_statistics(const Params& p, const TileIndex& tile, const RowStatistics& rows,
                                                 int row) {
  if (threadIdx.x % 4 != 0 || cta_of_tile<C>() != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = row + 8 * r;
    if (own >= rows_of_tile_head<C>(p, tile)) continue;
    if (padded_heads(C) != C.pack_gqa && own % padded_heads(C) >= C.pack_gqa) continue;
    store_statistic<C>(p, tile, rows, r, own);
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

// fp32 O: the columns of one pass. Addresses as above; rows that are 8 apart have the same swizzle.
template <Config C>
__device__ __forceinline__ void stage_unnormalized(const Accumulator<C>& output, int pass, unsigned slot) {
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

struct GlobalRow {
  char* to;
  __device__ __forceinline__ void operator()(int byte, const ptx::Vector4& words) const {
    ptx::st_global_v4(to + byte, words);
  }
  __device__ __forceinline__ void operator()(int byte, unsigned x, unsigned y) const {
    ptx::st_global_v2(to + byte, x, y);
  }
};

// A thread's part of a row, which begins at `to`: 16-bit or fp32.
template <Config C, bool kIsF32>
__device__ __forceinline__ void store_columns(char* to, const Accumulator<C>& output, int r) {
  if constexpr (has_fours(C) || has_eights(C)) {
    give_columns<C, kIsF32>(output, r, 0, o_columns(C) / (4 * kColumnsOfThread<C>), GlobalRow{to});
  } else {
    static_assert(kIsF32);  // 16-bit ones: store_rows()
#pragma unroll
    for (int i = 0; i < o_columns(C) / 8; ++i)
      ptx::st_global_v2(to + 32 * i, __float_as_uint(output[4 * i + 2 * r]),
                        __float_as_uint(output[4 * i + 2 * r + 1]));
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

// Two columns of a thread's r-th row. Registers have no index: r may be a loop's.
template <Config C>
__device__ __forceinline__ unsigned packed_pair(const Accumulator<C>& output, int i, int r) {
  const float* const pair = output + 4 * i;
  const unsigned first = ptx::cvt_pack<C.facts.dtype>(pair[0], pair[1]);
  const unsigned second = ptx::cvt_pack<C.facts.dtype>(pair[2], pair[3]);
  return r == 0 ? first : second;
}

// A whole tile's O from registers, each row where it is one of the head's. 16-bit ones leave 16 bytes a lane: four
// lanes, which have two columns each of eight, exchange those of four such groups.
template <Config C>
__device__ __forceinline__ void store_rows(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                           int row) {
  constexpr int kGroups = o_columns(C) / 8;
  constexpr bool kIsNarrow = C.facts.output == Output::normalized;
  const HeadIndex at = head_of<C>(p, tile);
  if constexpr (has_fours(C) || has_eights(C)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = row + 8 * r;
      if (own >= rows_of_tile_head<C>(p, tile)) continue;
      const int column = kColumnsOfThread<C> * (static_cast<int>(threadIdx.x) % 4);
      char* const to = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), own) + o_element_bytes(C.facts) * column;
      store_columns<C, !kIsNarrow>(to, output, r);
    }
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 4;
  // By mma.sync, whose compiles are the longest, one copy of the code for both rows.
  constexpr int kCopies = owns_rows(C) ? 1 : 2;
#pragma unroll kCopies
  for (int r = 0; r < 2; ++r) {
    const int own = row + 8 * r;
    const bool is_there = own < rows_of_tile_head<C>(p, tile);
    char* const to = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), own) +
                     o_element_bytes(C.facts) * (cta_of_tile<C>() * v_columns(C));
    constexpr int kExchanged = kIsNarrow ? kGroups / 4 * 4 : 0;
#pragma unroll
    for (int i = 0; i < kExchanged; i += 4) {
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = packed_pair<C>(output, i + j, r);
      common::transpose_quad(words);
      if (is_there) ptx::st_global_v4(to + 16 * (i + lane), {words[0], words[1], words[2], words[3]});
    }
    if (!is_there) continue;
#pragma unroll
    for (int i = kExchanged; i < kGroups; ++i) {
      if constexpr (kIsNarrow) {
        ptx::st_global_u32(to + 16 * i + 4 * lane, packed_pair<C>(output, i, r));
      } else {
        const float low = r == 0 ? output[4 * i] : output[4 * i + 2];
        const float high = r == 0 ? output[4 * i + 1] : output[4 * i + 3];
        ptx::st_global_v2(to + 32 * i + 8 * lane, __float_as_uint(low), __float_as_uint(high));
      }
    }
  }
}

// By wgmma: whether 16-bit rows that no box stores go through the tile's Q slot, from which each warp takes its own.
// That is a loop of few instructions, where an exchange between lanes is one for every register. Keys that are not
// dealt keep the exchange: by the slot their kernels took 1.3 to 2 % longer.
template <Config C>
__device__ constexpr bool leaves_by_slot() {
  return is_dealt(C) && !uses_mma_sync(C) && C.facts.output == Output::normalized && !has_fours(C);
}

// O in Q slot number `index`, for each warp to read what it wrote.
template <Config C>
__device__ __forceinline__ unsigned stage_for_warp(const Accumulator<C>& output, int warpgroup, int index,
                                                   unsigned smem) {
  const unsigned slot = smem + smem_layout(C).q.offset + index * q_slot_bytes(C);
  meet_warpgroup(warpgroup);
  stage_normalized<C>(output, slot);
  __syncwarp();
  return slot;
}

// Rows of the warp's 16 that are the head's, as stage_normalized() left them.
template <Config C>
__device__ __forceinline__ void store_staged_rows(const Params& p, const TileIndex& tile, int warpgroup,
                                                  unsigned slot) {
  constexpr int kSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kChunks = o_columns(C) / 8;
  const HeadIndex at = head_of<C>(p, tile);
  const int first_row = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16;
  const int first = tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup + first_row;
  const int rows = min(rows_of_tile_head<C>(p, tile) - first, 16);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < rows * kChunks; i += 32) {
    const unsigned place = static_cast<unsigned>(i);  // whose division is shorter
    const int row = static_cast<int>(place / kChunks), byte = static_cast<int>(place % kChunks * 16);
    const unsigned from = slot + byte / kSpan * kRowsPerWarpgroup * kSpan + (first_row + row) * kSpan + byte % kSpan;
    const ptx::Words4 words = ptx::ld_shared_v4(swizzle_address(C.swizzle, from));
    char* const to = o_row_of<C>(p, at, first_query_of<C>(p, tile, at), first + row) +
                     o_element_bytes(C.facts) * (cta_of_tile<C>() * v_columns(C));
    ptx::st_global_v4(to + byte, {words.x, words.y, words.z, words.w});
  }
}

// A whole tile's O by its Q slot, which is free then.
template <Config C>
__device__ __forceinline__ void store_by_slot(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                              int warpgroup, const RingPosition<C.q_stages>& q, unsigned smem) {
  const int index = q.slot() * row_groups(C) + warpgroup;
  store_staged_rows<C>(p, tile, warpgroup, stage_for_warp<C>(output, warpgroup, index, smem));
  give_rows(barrier_at<barriers(C).q_empty>(smem, index));
}

// Where a row of a part lies in the workspace.
template <Config C>
__device__ __forceinline__ long long part_index(const Params& p, const TileIndex& tile, int row) {
  if constexpr (is_dealt(C)) return part_row<C>(p, tile.split, row - tile.m * C.tile_m);
  const int head = tile.head * C.pack_gqa + row % C.pack_gqa;
  return tile.split * num_rows(p) + static_cast<long long>(head) * p.seqlen_q + row / C.pack_gqa;
}

// Split keys: a part's O goes from registers to the workspace. `row`: the thread's first.
template <Config C>
__device__ __forceinline__ void store_rows_of_part(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                                   int row) {
  if constexpr (is_dealt(C) && !leaves_by_slot<C>()) {
    if (tile.split < 0) {
      store_rows<C>(p, output, tile, row);
      return;
    }
  }
  const int column = cta_of_tile<C>() * v_columns(C) + kColumnsOfThread<C> * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = row + 8 * r;
    if (own >= rows_of_tile_head<C>(p, tile)) continue;
    float* const to = p.partial_o + part_index<C>(p, tile, own) * C.facts.head_dim_v + column;
    store_columns<C, true>(reinterpret_cast<char*>(to), output, r);
  }
}

template <Config C>
__device__ __forceinline__ void store_part(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                           int row, int warpgroup, const RingPosition<C.q_stages>& q, unsigned smem) {
  if constexpr (is_dealt(C) && leaves_by_slot<C>()) {
    if (tile.split < 0) return store_by_slot<C>(p, output, tile, warpgroup, q, smem);
  }
  const int index_of_slot = q.slot() * row_groups(C) + warpgroup;
  // With the slot goes the tile's message, which all lanes have read.
  if constexpr (passes_tiles(C) && !owns_rows(C)) __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<barriers(C).q_empty>(smem, index_of_slot));
  store_rows_of_part<C>(p, output, tile, row);
}

// Consumers' side. The Q slot is free once every warp of the warpgroup has passed the first barrier: their products
// with Q are done. Where O takes several passes, each waits until the one before has left: all of them but the last are
// phases of o_read.
template <Config C>
__device__ __forceinline__ void wait_for_pass(int pass, int warpgroup, const RingPosition<C.q_stages>& q,
                                              unsigned smem) {
  if (pass == 0) return;
  const unsigned tiles = (o_passes(C) - 1) % 2 == 0 ? 0 : tile_parity(q);  // phases of the tiles before
  ptx::mbarrier_wait_parity(barrier_at<barriers(C).o_read>(smem, warpgroup), tiles ^ ((pass - 1) % 2));
}

template <Config C>
__device__ __forceinline__ void stage_output(const Accumulator<C>& output, int warpgroup,
                                             const RingPosition<C.q_stages>& q, unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  const int index = q.slot() * row_groups(C) + warpgroup;
  const unsigned slot = smem + smem_layout(C).q.offset + index * q_slot_bytes(C);
#pragma unroll
  for (int pass = 0; pass < o_passes(C); ++pass) {
    wait_for_pass<C>(pass, warpgroup, q, smem);
    if constexpr (!owns_rows(C))
      if (pass == 0) meet_warpgroup(warpgroup);
    if constexpr (has_fours(C) || has_eights(C)) {
      stage_columns<C>(output, pass, slot);
    } else if constexpr (C.facts.output == Output::normalized) {
      stage_normalized<C>(output, slot);
    } else {
      stage_unnormalized<C>(output, pass, slot);
    }
    give_rows(barrier_at<kBarriers.o_full>(smem, index));
  }
}

// Ragged: whether all of a warpgroup's rows are rows of the head, so that a box may store them. Else the rows behind
// belong to the next sequence.
template <Config C>
__device__ __forceinline__ bool fills_box(const Params& p, const TileIndex& tile, int warpgroup) {
  if constexpr (!is_ragged(C.facts)) return true;
  return tile.m * C.tile_m + (warpgroup + 1) * kRowsPerWarpgroup <= rows_of_tile_head<C>(p, tile);
}

// Consumers' side for ragged sequences: rows that fill no box leave from the slot or from registers, and the storing
// thread only hands the slot back. `row`: the thread's first.
template <Config C>
__device__ __forceinline__ void hand_over_ragged(const Params& p, const Accumulator<C>& output, const TileIndex& tile,
                                                 int row, int warpgroup, const RingPosition<C.q_stages>& q,
                                                 unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  const int index = q.slot() * row_groups(C) + warpgroup;
  if constexpr (leaves_by_slot<C>()) {
    const unsigned slot = stage_for_warp<C>(output, warpgroup, index, smem);
    if (!fills_box<C>(p, tile, warpgroup)) store_staged_rows<C>(p, tile, warpgroup, slot);
    return give_rows(barrier_at<kBarriers.o_full>(smem, index));
  }
  if (fills_box<C>(p, tile, warpgroup)) {
    stage_output<C>(output, warpgroup, q, smem);
    return;
  }
  store_rows<C>(p, output, tile, row);
#pragma unroll
  for (int pass = 0; pass < o_passes(C); ++pass) {
    wait_for_pass<C>(pass, warpgroup, q, smem);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.o_full>(smem, index));
  }
}

// The storing thread's side. A Q slot goes back to its loader when TMA has read the last of O.
template <Config C>
__device__ __forceinline__ void store_output(const Params& p, unsigned smem, const TileIndex& tile, const HeadIndex& at,
                                             const RingPosition<C.q_stages>& q) {
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kWarpgroups = row_groups(C);
  constexpr int kPanels = v_columns(C) / o_passes(C) / o_span_elements(C);
#pragma unroll 1  // unrolled, the addresses spill
  for (int i = 0; i < o_passes(C) * kWarpgroups; ++i) {
    // All of a group's passes first where a warp has two groups and more than two passes: it stages them in this order.
    constexpr bool kByGroups = o_passes(C) > 2;
    const int pass = kByGroups ? i % o_passes(C) : i / kWarpgroups;
    const int warpgroup = kByGroups ? i / o_passes(C) : i % kWarpgroups;
    const int index = q.slot() * kWarpgroups + warpgroup;
    // Each pass is a phase.
    const unsigned full_parity = o_passes(C) == 1 ? q.parity() : static_cast<unsigned>(pass % 2);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_full>(smem, index), full_parity);
    const unsigned from = smem + smem_layout(C).q.offset + index * q_slot_bytes(C);
    const int row =
        first_query_of<C>(p, tile, at) * padded_heads(C) + tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup;
    const int first = (cta_of_tile<C>() * o_passes(C) + pass) * kPanels;
    if (!fills_box<C>(p, tile, warpgroup)) {
    } else if constexpr (!is_packed(C) && is_padded(C.facts)) {
#pragma unroll 1
      for (int panel = 0; panel < kPanels; ++panel) {
        ptx::tma_store_5d(p.o, from + panel * kRowsPerWarpgroup * swizzle_span_bytes(C.swizzle),
                          (first + panel) * o_span_elements(C), row, 0, at.head, sequence_of_map<C>(at));
      }
    } else if constexpr (!is_packed(C)) {
      ptx::tma_store_5d(p.o, from, 0, row, first, at.head, sequence_of_map<C>(at));
    } else {
#pragma unroll 1
      for (int panel = 0; panel < kPanels; ++panel) {
        ptx::tma_store_5d(p.o, from + panel * kRowsPerWarpgroup * swizzle_span_bytes(C.swizzle),
                          (first + panel) * o_span_elements(C), head_of_box<C>(row), row / padded_heads(C), at.head,
                          sequence_of_map<C>(at));
      }
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();
    const bool is_last = pass == o_passes(C) - 1;
    ptx::mbarrier_arrive(
        smem + (is_last ? barrier_at<kBarriers.q_empty>(0, index) : barrier_at<kBarriers.o_read>(0, warpgroup)));
  }
}

}  // namespace tessera::fmha
