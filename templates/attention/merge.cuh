// Merges the parts of split keys: a warp for each row of the output.
//
// Part i of a row is O_i = sum exp(s - m_i) v, un-normalised, with the reference m_i and the sum l_i. With m the
// largest reference, O = sum O_i exp(m_i - m) and l = sum l_i exp(m_i - m). A part that saw no key has m_i = -inf and
// weighs nothing; a row of such parts alone gives 0, and its logarithm -inf. Sums go through the parts in their order
// or in a fixed tree: bits do not change from run to run.
//
// The launch does not wait for the kernel that computes the parts: this one's CTAs are in place when it ends.
#pragma once

#include "attention/sink.cuh"
#include "ptx/global_written.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/math.cuh"
#include "spec/attention_facts.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::attention {

struct MergeParams {
  const float* partial_o;
  const float* partial_sums;
  void* o;
  float* lse;                         // may be null
  float* row_max = nullptr;           // un-normalised output only
  float* row_sum = nullptr;           // likewise
  const float* sink = nullptr;        // [heads_q], may be null: where the Config has sinks
  const int* cu_seqlens_q = nullptr;  // [batch + 1]: ragged queries
  int batch;
  int heads_q;
  int seqlen_q;
  int num_splits;
  long long o_stride_head;
  long long o_stride_seqlen;
  long long o_stride_batch;
};

// Where a row's statistics go, and its head's sink: see MergeParams.
struct Statistics {
  float* lse;
  float* row_max;
  float* row_sum;
  const float* sink;
  int head;
};

// Whether warps of mma.sync have rows of their own: where the Config knows of such.
template <auto C>
TESSERA_HD constexpr bool owns_rows_by_warps() {
  if constexpr (requires { owns_rows(C); }) return owns_rows(C);
  return false;
}

// A row's parts, of which number i is row part_row(i) of partial_o and partial_sums, to `o`.
//
// What a merge takes is latency: the first parts' O, for all columns, is on its way before their weights are known.
template <auto C, class PartRow>
__device__ __forceinline__ void merge_row(const float* partial_o, const float* partial_sums, int num_parts,
                                          const PartRow& part_row, char* o_row, const Statistics& statistics,
                                          long long statistic) {
  constexpr float kLn2 = 0.6931471805599453f;
  constexpr int kColumns = C.facts.head_dim_v;
  constexpr int kGroups = (kColumns + 127) / 128;  // of columns, 4 to a lane
  // Beside products by mma.sync, whose compiles are the longest, fewer of wide rows: 0.1 s of some 1.5.
  constexpr int kAtOnce = kGroups == 1 ? 16 : kGroups == 2 && !owns_rows_by_warps<C>() ? 8 : 4;
  static_assert(32 % kAtOnce == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto is_mine = [&](int group) { return kColumns % 128 == 0 || 128 * group + 4 * lane < kColumns; };
  // Each lane looks at parts of its own; 32 at a time.
  const auto sums_of = [&](int part, float& reference, float& sum) {
    unsigned bits[2] = {__float_as_uint(ptx::minus_infinity()), 0};
    if (part < num_parts) ptx::ld_global_v2_written(partial_sums + 2 * part_row(part), bits[0], bits[1]);
    reference = __uint_as_float(bits[0]);
    sum = __uint_as_float(bits[1]);
  };
  ptx::Vector4 loaded[kAtOnce][kGroups];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= num_parts) break;
      const float* const row = partial_o + part_row(first + i) * kColumns + 4 * lane;
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        if (is_mine(group)) loaded[i][group] = ptx::ld_global_v4_written(row + 128 * group);
    }
  };

  float reference, part_sum;  // of the first 32 parts until all are added up
  sums_of(lane, reference, part_sum);
  load(0);
  float max = reference;
#pragma unroll 1
  for (int first = 32; first < num_parts; first += 32) {
    float other, unused;
    sums_of(first + lane, other, unused);
    max = fmaxf(max, other);
  }
#pragma unroll
  for (int i = 16; i > 0; i /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, i));
  const float subtrahend = max == ptx::minus_infinity() ? 0.0f : max;
  float sum = part_sum * ptx::ex2(reference - subtrahend);
#pragma unroll 1
  for (int first = 32; first < num_parts; first += 32) {
    float other, other_sum;
    sums_of(first + lane, other, other_sum);
    sum += other_sum * ptx::ex2(other - subtrahend);
  }
#pragma unroll
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffff, sum, i);
  float whole = sum;
  if constexpr (has_sink(C.facts)) {
    if (statistics.sink != nullptr) whole += sink_share(statistics.sink[statistics.head], subtrahend);
  }
  const float factor = C.facts.output == Output::unnormalized ? 1.0f : whole == 0.0f ? 0.0f : 1.0f / whole;

  float o[kGroups][4] = {};
  float own_weight = ptx::ex2(reference - subtrahend) * factor;
#pragma unroll 1
  for (int first = 0; first < num_parts; first += kAtOnce) {
    if (first > 0) load(first);
    if (first > 0 && first % 32 == 0) {
      sums_of(first + lane, reference, part_sum);
      own_weight = ptx::ex2(reference - subtrahend) * factor;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= num_parts) break;
      const float weight = __shfl_sync(0xffffffff, own_weight, first % 32 + i);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const ptx::Vector4& part = loaded[i][group];
        o[group][0] = fmaf(__uint_as_float(part.x), weight, o[group][0]);
        o[group][1] = fmaf(__uint_as_float(part.y), weight, o[group][1]);
        o[group][2] = fmaf(__uint_as_float(part.z), weight, o[group][2]);
        o[group][3] = fmaf(__uint_as_float(part.w), weight, o[group][3]);
      }
    }
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (!is_mine(group)) continue;
    const float* const of_group = o[group];
    char* const out = o_row + (128 * group + 4 * lane) * o_element_bytes(C.facts);
    if constexpr (C.facts.output == Output::unnormalized) {
      ptx::st_global_v4(out, {__float_as_uint(of_group[0]), __float_as_uint(of_group[1]), __float_as_uint(of_group[2]),
                              __float_as_uint(of_group[3])});
    } else {
      ptx::st_global_v2(out, ptx::cvt_pack<o_dtype(C.facts)>(of_group[0], of_group[1]),
                        ptx::cvt_pack<o_dtype(C.facts)>(of_group[2], of_group[3]));
    }
  }
  if (lane != 0) return;
  if (statistics.lse != nullptr) statistics.lse[statistic] = (subtrahend + ptx::lg2(sum)) * kLn2;
  if constexpr (C.facts.output == Output::unnormalized) {
    statistics.row_max[statistic] = max * kLn2;
    statistics.row_sum[statistic] = sum;
  }
}

// Whether a sequence has the query: rows of o that none has are not written. Ragged queries only.
__device__ __forceinline__ bool has_query(const MergeParams& p, long long query) {
  const auto bound = [&](int i) { return static_cast<int>(ptx::ld_global_u32(p.cu_seqlens_q + i)); };
  return bound(0) <= query && query < bound(p.batch);
}

// Parts [num_splits][rows], rows as those of the statistics.
template <auto C>
__device__ __forceinline__ void merge(const MergeParams& p) {
  ptx::griddepcontrol_launch_dependents();  // the next launch may get ready; it waits for the end of this one
  const long long rows = static_cast<long long>(is_ragged(C.facts) ? 1 : p.batch) * p.heads_q * p.seqlen_q;
  const long long row = static_cast<long long>(blockIdx.x) * kMergeRows + threadIdx.x / 32;
  if (row >= rows) return;
  const unsigned query_head = static_cast<unsigned>(row / p.seqlen_q);
  const long long query = row - static_cast<long long>(query_head) * p.seqlen_q;
  const unsigned batch = query_head / static_cast<unsigned>(p.heads_q);
  const unsigned head = query_head - batch * static_cast<unsigned>(p.heads_q);
  const long long first_of_row = batch * p.o_stride_batch + query * p.o_stride_seqlen + head * p.o_stride_head;
  ptx::griddepcontrol_wait();
  if (is_ragged(C.facts) && !has_query(p, query)) return;
  merge_row<C>(
      p.partial_o, p.partial_sums, p.num_splits, [&](int part) { return part * rows + row; },
      static_cast<char*>(p.o) + first_of_row * o_element_bytes(C.facts),
      {p.lse, p.row_max, p.row_sum, p.sink, static_cast<int>(head)}, row);
}

}  // namespace tessera::attention
