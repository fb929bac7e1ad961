// The bodies of attention_quantize's three steps. In and out: see spec/attention_quantize.h.
//
// A thread has 16 neighbours at a time: two 16-byte loads of q or k, sixteen rows of one column of v; its quotients are
// two words of a fragment and one scale.
#pragma once

#include "attention/nvfp4_sequences.cuh"
#include "common/illegal_config.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "quantize/elements.cuh"
#include "quantize/round.cuh"
#include "quantize/scale.cuh"
#include "spec/attention_quantize.h"

namespace tessera::attention_quantize {

// Elements from one head, row, and sequence (of pages: page) to the next.
struct Strides {
  long long head, seqlen, batch;
};

struct Params {
  const void *q, *k, *v;
  const int *cu_seqlens_q, *cu_seqlens_k, *seqused_q, *seqused_k, *block_table;  // null where there are none
  void *q_units, *k_units, *v_units;
  float *q_mean, *k_mean, *delta_s, *row_shift;
  float* k_sums;  // [heads_kv, key_blocks, head_dim]
  int batch, heads_q, heads_kv, seqlen_q, seqlen_k;
  int tokens_k, pages, max_pages;  // 0 where there are none
  Strides q_strides, k_strides, v_strides;
};

inline constexpr int kBlockRows = nvfp4::kBlockRows;

template <Config C, bool kIsQ>
TESSERA_HD constexpr bool is_ragged() {
  return kIsQ ? C.q_layout == QueryLayout::ragged : C.kv_layout == KvLayout::ragged;
}
// Blocks of one head, of all sequences.
template <Config C, bool kIsQ>
__device__ __forceinline__ int num_blocks(const Params& p) {
  return attention::blocks_of_all<is_ragged<C, kIsQ>(), kBlockRows>(p.batch, kIsQ ? p.seqlen_q : p.seqlen_k,
                                                                    kIsQ ? p.seqlen_q : p.tokens_k);
}
template <Config C, bool kIsQ>
__device__ __forceinline__ attention::SequenceRows rows_of(const Params& p, int sequence) {
  return attention::rows_of<is_ragged<C, kIsQ>(), kBlockRows>(
      kIsQ ? p.cu_seqlens_q : p.cu_seqlens_k, kIsQ ? p.seqused_q : p.seqused_k, sequence,
      kIsQ ? p.seqlen_q : p.seqlen_k, kIsQ ? p.seqlen_q : p.tokens_k);
}

// A block of one head of one sequence.
template <Config C, bool kIsQ>
struct Block {
  int head, sequence;
  int number;  // of its head's blocks
  int first;   // of its rows, in the sequence
  int rows;    // that there are, 128 at most, or none
  attention::SequenceRows of;

  __device__ __forceinline__ Block(const Params& p, int index) {
    const int blocks = num_blocks<C, kIsQ>(p);
    head = index / blocks;
    number = index - head * blocks;
    sequence = attention::sequence_of<is_ragged<C, kIsQ>(), kBlockRows>(kIsQ ? p.cu_seqlens_q : p.cu_seqlens_k, number,
                                                                        p.batch, kIsQ ? p.seqlen_q : p.seqlen_k,
                                                                        kIsQ ? p.seqlen_q : p.tokens_k);
    of = rows_of<C, kIsQ>(p, sequence);
    first = (number - of.first_block) * kBlockRows;
    rows = max(min(of.rows - first, kBlockRows), 0);
  }
  // Where a row of the block is, or false where its page is none of the pool's: its numbers are zeros.
  __device__ __forceinline__ bool find(const Params& p, const Strides& s, int row, long long& element) const {
    int at = first + row;
    long long base = head * s.head;
    if constexpr (!kIsQ && C.kv_layout == KvLayout::paged) {
      const int page = static_cast<int>(
          ptx::ld_global_u32(p.block_table + static_cast<long long>(sequence) * p.max_pages + at / C.page_size));
      if (page < 0 || page >= p.pages) return false;
      base += page * s.batch;
      at %= C.page_size;
    } else {
      base += sequence * s.batch;
      at += of.first;
    }
    element = base + at * s.seqlen;
    return true;
  }
};

// Sums of a block's rows, of all columns; in shared memory afterwards, for all threads: [head_dim].
template <Config C, bool kIsQ>
__device__ __forceinline__ void sum_rows(const Params& p, const Block<C, kIsQ>& at, float* sums) {
  constexpr int kPairs = C.head_dim / 2, kStripes = stripes(C);
  const int pair = static_cast<int>(threadIdx.x) % kPairs, stripe = static_cast<int>(threadIdx.x) / kPairs;
  float low = 0, high = 0;
#pragma unroll 8
  for (int row = stripe; row < nvfp4::kBlockRows; row += kStripes) {
    if (row >= at.rows) break;
    float a, b;
    long long element = 0;
    if (!at.find(p, kIsQ ? p.q_strides : p.k_strides, row, element)) continue;
    quantize::unpack_pair<C.dtype>(
        ptx::ld_global_u32(static_cast<const char*>(kIsQ ? p.q : p.k) + 2 * (element + 2 * pair)), a, b);
    low += a;
    high += b;
  }
  sums[stripe * C.head_dim + 2 * pair] = low;
  sums[stripe * C.head_dim + 2 * pair + 1] = high;
  __syncthreads();
  if (threadIdx.x < C.head_dim) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kStripes; ++i) sum += sums[i * C.head_dim + threadIdx.x];
    sums[threadIdx.x] = sum;
  }
}

template <Config C, bool kIsQ>
__device__ __forceinline__ void mean_of_block(const Params& p, int index, float* sums) {
  const Block<C, kIsQ> at(p, index);
  if (at.rows == 0) return;
  sum_rows<C, kIsQ>(p, at, sums);
  if (threadIdx.x >= C.head_dim) return;
  const long long to = static_cast<long long>(index) * C.head_dim + threadIdx.x;
  if constexpr (kIsQ) {
    p.q_mean[to] = __fdiv_rn(sums[threadIdx.x], static_cast<float>(at.rows));
  } else {
    p.k_sums[to] = sums[threadIdx.x];
  }
}

// Grid: blocks of q of all heads, then those of k.
template <Config C>
__device__ __forceinline__ void means_kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  extern __shared__ __align__(16) float shared_sums[];
  const int of_q = p.heads_q * num_blocks<C, true>(p), index = static_cast<int>(blockIdx.x);
  if (index < of_q) {
    mean_of_block<C, true>(p, index, shared_sums);
  } else {
    mean_of_block<C, false>(p, index - of_q, shared_sums);
  }
}

// Grid: sequences of all heads.
template <Config C>
__device__ __forceinline__ void mean_of_keys_kernel(const Params& p) {
  if (threadIdx.x >= C.head_dim) return;
  const int head = static_cast<int>(blockIdx.x) / p.batch, sequence = static_cast<int>(blockIdx.x) - head * p.batch;
  const attention::SequenceRows of = rows_of<C, false>(p, sequence);
  const int blocks = attention::blocks_of_rows<kBlockRows>(of.rows);
  const float* const sums =
      p.k_sums + (static_cast<long long>(head) * num_blocks<C, false>(p) + of.first_block) * C.head_dim + threadIdx.x;
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < blocks; ++i) sum += sums[static_cast<long long>(i) * C.head_dim];
  p.k_mean[static_cast<long long>(blockIdx.x) * C.head_dim + threadIdx.x] =
      blocks == 0 ? 0.0f : __fdiv_rn(sum, static_cast<float>(of.rows));
}

// Sixteen numbers to their scale's code and the words of their values.
template <Config C>
__device__ __forceinline__ void quantize_group(float (&x)[nvfp4::kGroup], unsigned& code, unsigned (&words)[2]) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < nvfp4::kGroup; ++i) amax = fmaxf(amax, fabsf(x[i]));
  code = quantize::ue4m3_code(quantize::sixth(fminf(amax, quantize::largest_float())));
  const float d = quantize::ue4m3_value(code);
  quantize::divide_checked<true>(x, d == 0 ? 1.0f : d, amax);
  if constexpr (C.conversion == Conversion::software) {
    quantize::encode_e2m1_software(x, words);
  } else {
    quantize::encode_e2m1_hardware(x, words);
  }
  if (d == 0) words[0] = words[1] = 0;
}

// Sixteen columns of a row.
template <Config C>
__device__ __forceinline__ void load_columns(const void* x, long long element, float (&values)[nvfp4::kGroup]) {
  quantize::Source16<C.dtype> source;
  quantize::load_source(x, element, source);
  quantize::to_f32(source, values);
}
__device__ __forceinline__ void load_floats(const float* from, float (&values)[nvfp4::kGroup]) {
#pragma unroll
  for (int i = 0; i < nvfp4::kGroup; i += 4) {
    const ptx::Vector4 v = ptx::ld_global_v4(from + i);
    values[i] = __uint_as_float(v.x);
    values[i + 1] = __uint_as_float(v.y);
    values[i + 2] = __uint_as_float(v.z);
    values[i + 3] = __uint_as_float(v.w);
  }
}

template <Config C>
__device__ __forceinline__ void quantize_queries(const Params& p, int index) {
  constexpr int kGroups = C.head_dim / nvfp4::kGroup;
  const Block<C, true> at(p, index);
  if (at.rows == 0) return;
  char* const units = static_cast<char*>(p.q_units) + static_cast<long long>(index) * nvfp4::q_block_bytes(C.head_dim);
  const float* const q_mean = p.q_mean + static_cast<long long>(index) * C.head_dim;
  const int key_head = at.head / (p.heads_q / p.heads_kv);
  const float* const k_mean = p.k_mean + static_cast<long long>(key_head * p.batch + at.sequence) * C.head_dim;
  const long long shifts = C.q_layout == QueryLayout::ragged
                               ? static_cast<long long>(at.head) * p.seqlen_q + at.of.first
                               : (static_cast<long long>(at.sequence) * p.heads_q + at.head) * p.seqlen_q;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kGroups; i += kThreads) {
    const int row = i / kGroups, column = i % kGroups * nvfp4::kGroup;
    float x[nvfp4::kGroup] = {}, mean[nvfp4::kGroup];
    float shift = 0;
    if (row < at.rows) {
      long long element = 0;
      at.find(p, p.q_strides, row, element);
      load_columns<C>(p.q, element + column, x);
      load_floats(k_mean + column, mean);
#pragma unroll
      for (int e = 0; e < nvfp4::kGroup; ++e) shift = fmaf(x[e], mean[e], shift);
      load_floats(q_mean + column, mean);
#pragma unroll
      for (int e = 0; e < nvfp4::kGroup; ++e) x[e] -= mean[e];
    }
    // A row's groups are neighbouring lanes.
#pragma unroll
    for (int distance = 1; distance < kGroups; distance *= 2) shift += __shfl_xor_sync(0xffffffff, shift, distance);
    unsigned code, words[2];
    quantize_group<C>(x, code, words);
    char* const unit = units + row / nvfp4::kRowsOfUnit * nvfp4::q_unit_bytes(C.head_dim);
    const int of_unit = row % nvfp4::kRowsOfUnit;
    ptx::st_global_u32(unit + nvfp4::q_word(of_unit, column), words[0]);
    ptx::st_global_u32(unit + nvfp4::q_word(of_unit, column + 8), words[1]);
    ptx::st_global_u8(unit + nvfp4::q_scale(C.head_dim, of_unit, column), code);
    if (column == 0 && row < at.rows) p.row_shift[shifts + at.first + row] = shift;
  }
}

// delta_s of a block's keys, which shared memory has: a key for each thread of a half, kAtOnce blocks of queries after
// the other. Keys that are not there are zeros.
template <Config C>
__device__ __forceinline__ void multiply_means(const Params& p, const Block<C, false>& at, const float* keys) {
  constexpr int kAtOnce = 4, kHalves = kThreads / kBlockRows;
  const int key = static_cast<int>(threadIdx.x) % kBlockRows;
  const int half = static_cast<int>(threadIdx.x) / kBlockRows;
  const attention::SequenceRows queries = rows_of<C, true>(p, at.sequence);
  const int group = p.heads_q / p.heads_kv, blocks = attention::blocks_of_rows<kBlockRows>(queries.rows);
  const long long columns = static_cast<long long>(attention::blocks_of_rows<kBlockRows>(p.seqlen_k)) * kBlockRows;
  const int of_head = num_blocks<C, true>(p);
#pragma unroll 1
  for (int first = half * kAtOnce; first < group * blocks; first += kHalves * kAtOnce) {
    float sums[kAtOnce] = {};
    long long rows[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int of_group = min(first + i, group * blocks - 1);
      rows[i] = static_cast<long long>(at.head * group + of_group / blocks) * of_head + queries.first_block +
                of_group % blocks;
    }
#pragma unroll 1
    for (int column = 0; column < C.head_dim; column += 4) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const ptx::Vector4 mean = ptx::ld_global_v4(p.q_mean + rows[i] * C.head_dim + column);
        const float* const x = keys + key * pitch(C) + column;
        sums[i] = fmaf(__uint_as_float(mean.x), x[0], sums[i]);
        sums[i] = fmaf(__uint_as_float(mean.y), x[1], sums[i]);
        sums[i] = fmaf(__uint_as_float(mean.z), x[2], sums[i]);
        sums[i] = fmaf(__uint_as_float(mean.w), x[3], sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i < group * blocks) p.delta_s[rows[i] * columns + at.first + key] = sums[i];
  }
}

template <Config C>
__device__ __forceinline__ void quantize_keys(const Params& p, int index, float* keys) {
  constexpr int kGroups = C.head_dim / nvfp4::kGroup;
  const Block<C, false> at(p, index);
  if (at.rows == 0) return;
  char* const units =
      static_cast<char*>(p.k_units) + static_cast<long long>(index) * nvfp4::key_block_bytes(C.head_dim);
  const float* const k_mean = p.k_mean + static_cast<long long>(at.head * p.batch + at.sequence) * C.head_dim;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kGroups; i += kThreads) {
    const int key = i / kGroups, column = i % kGroups * nvfp4::kGroup;
    float x[nvfp4::kGroup] = {};
    if (key < at.rows) {
      float mean[nvfp4::kGroup];
      long long element = 0;
      if (at.find(p, p.k_strides, key, element)) load_columns<C>(p.k, element + column, x);
      load_floats(k_mean + column, mean);
#pragma unroll
      for (int e = 0; e < nvfp4::kGroup; ++e) x[e] -= mean[e];
    }
#pragma unroll
    for (int e = 0; e < nvfp4::kGroup; ++e) keys[key * pitch(C) + column + e] = x[e];
    unsigned code, words[2];
    quantize_group<C>(x, code, words);
    char* const unit = units + key / nvfp4::kKeysOfUnit * nvfp4::key_unit_bytes(C.head_dim);
    const int of_unit = key % nvfp4::kKeysOfUnit;
    ptx::st_global_u32(unit + nvfp4::k_word(C.head_dim, of_unit, column), words[0]);
    ptx::st_global_u32(unit + nvfp4::k_word(C.head_dim, of_unit, column + 8), words[1]);
    ptx::st_global_u8(unit + nvfp4::k_scale(C.head_dim, of_unit, column), code);
  }
  __syncthreads();
  multiply_means<C>(p, at, keys);
}

template <Config C>
__device__ __forceinline__ void quantize_values(const Params& p, int index) {
  constexpr int kGroups = kBlockRows / nvfp4::kGroup;
  const Block<C, false> at(p, index);
  if (at.rows == 0) return;
  char* const units =
      static_cast<char*>(p.v_units) + static_cast<long long>(index) * nvfp4::key_block_bytes(C.head_dim);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kGroups * C.head_dim; i += kThreads) {
    const int column = i % C.head_dim, key = i / C.head_dim * nvfp4::kGroup;
    float x[nvfp4::kGroup];
#pragma unroll
    for (int e = 0; e < nvfp4::kGroup; ++e) {
      x[e] = 0;
      long long element = 0;
      if (key + e < at.rows && at.find(p, p.v_strides, key + e, element))
        x[e] = ptx::cvt_f32<C.dtype>(
            static_cast<unsigned short>(ptx::ld_global_u16(static_cast<const char*>(p.v) + 2 * (element + column))));
    }
    unsigned code, words[2];
    quantize_group<C>(x, code, words);
    char* const unit = units + key / nvfp4::kKeysOfUnit * nvfp4::key_unit_bytes(C.head_dim);
    const int of_unit = key % nvfp4::kKeysOfUnit;
    ptx::st_global_u32(unit + nvfp4::v_word(of_unit, column), words[0]);
    ptx::st_global_u32(unit + nvfp4::v_word(of_unit + 8, column), words[1]);
    ptx::st_global_u8(unit + nvfp4::v_scale(C.head_dim, of_unit, column), code);
  }
}

// Grid: blocks of k, which take longest, of v, of q.
template <Config C>
__device__ __forceinline__ void quantize_kernel(const Params& p) {
  extern __shared__ __align__(16) float shared_keys[];
  const int of_keys = p.heads_kv * num_blocks<C, false>(p), index = static_cast<int>(blockIdx.x);
  if (index < of_keys) {
    quantize_keys<C>(p, index, shared_keys);
  } else if (index < 2 * of_keys) {
    quantize_values<C>(p, index - of_keys);
  } else {
    quantize_queries<C>(p, index - 2 * of_keys);
  }
}

}  // namespace tessera::attention_quantize
