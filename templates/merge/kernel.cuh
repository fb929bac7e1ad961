// The body of merge: a thread for 16 bytes of a row, all parts. In and out: see spec/merge.h.
//
// The launch does not wait for the kernels that compute the parts: this one's CTAs are in place when they end.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/global_written.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/math.cuh"
#include "spec/merge.h"

namespace tessera::merge {

struct Params {
  const void* o_parts;
  const float* lse_parts;
  void* o;
  float* lse;         // may be null
  const float* sink;  // likewise
  int parts;
  int rows;
  int heads_q;
  int seqlen_q;
  long long o_parts_stride_part;
  long long o_parts_stride_batch;
  long long o_parts_stride_seqlen;
  long long o_parts_stride_head;
  long long lse_parts_stride_part;
  long long lse_parts_stride_batch;
  long long lse_parts_stride_head;
  long long o_stride_batch;
  long long o_stride_seqlen;
  long long o_stride_head;
};

struct RowPlace {
  unsigned batch, head, query;
};

// Row `row` in the order of spec/merge.h. The last queries of a sequence may be fewer than 8.
__device__ __forceinline__ RowPlace place_of(const Params& p, unsigned row) {
  const unsigned heads = static_cast<unsigned>(p.heads_q), queries = static_cast<unsigned>(p.seqlen_q);
  const unsigned batch = row / (heads * queries);
  const unsigned of_batch = row - batch * (heads * queries);
  const unsigned group = of_batch / (heads * kQueriesTogether);
  const unsigned first = group * kQueriesTogether;
  const unsigned of_group = of_batch - first * heads;
  const unsigned together = min(queries - first, static_cast<unsigned>(kQueriesTogether));
  const unsigned head = of_group / together;
  return {batch, head, first + of_group - head * together};
}

// Element i of 16 bytes.
template <DType kDType>
__device__ __forceinline__ float element(const ptx::Vector4& v, int i) {
  const unsigned words[] = {v.x, v.y, v.z, v.w};
  if constexpr (kDType == DType::f32) return __uint_as_float(words[i]);
  return ptx::cvt_f32<kDType>(static_cast<unsigned short>(i % 2 == 0 ? words[i / 2] : words[i / 2] >> 16));
}

template <Config C>
__device__ __forceinline__ void store(char* o, const float (&sums)[elements_of_thread(C)], float factor) {
  constexpr int kWords = elements_of_thread(C) * dtype_bytes(C.o_dtype) / 4;
  unsigned words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (C.o_dtype == DType::f32) {
      words[i] = __float_as_uint(sums[i] * factor);
    } else {
      words[i] = ptx::cvt_pack<C.o_dtype>(sums[2 * i] * factor, sums[2 * i + 1] * factor);
    }
  }
  if constexpr (kWords == 2) {
    ptx::st_global_v2(o, words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      ptx::st_global_v4(o + 4 * i, {words[i], words[i + 1], words[i + 2], words[i + 3]});
  }
}

// Of a row, as far as the parts were looked at: the largest lse, and sums relative to it.
template <Config C>
struct RowSums {
  float max, sum;
  float o[elements_of_thread(C)];
};

// What the largest lse is, or 0 where all are -inf: differences to it are never NaN.
__device__ __forceinline__ float subtrahend_of(float max) { return max == ptx::minus_infinity() ? 0.0f : max; }

// exp(x): the difference of two logarithms is rounded once, which is little where it is little.
__device__ __forceinline__ float exponential(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return ptx::ex2(x * kLog2E);
}

// Parts first to first + at_once of one row, as far as there are so many.
template <Config C>
__device__ __forceinline__ void add_parts(const Params& p, const char* o_part, const float* lse_part, int first,
                                          RowSums<C>& row) {
  float lse[C.at_once];
  ptx::Vector4 part[C.at_once];
#pragma unroll
  for (int i = 0; i < C.at_once; ++i) {
    lse[i] = ptx::minus_infinity();
    part[i] = {0, 0, 0, 0};
    if (first + i >= p.parts) continue;
    lse[i] = ptx::ld_global_f32_written(lse_part + (first + i) * p.lse_parts_stride_part);
    part[i] = ptx::ld_global_v4_written(o_part + (first + i) * p.o_parts_stride_part * dtype_bytes(C.dtype));
  }
  float max = row.max;
#pragma unroll
  for (int i = 0; i < C.at_once; ++i) max = fmaxf(max, lse[i]);
  const float subtrahend = subtrahend_of(max), factor = exponential(row.max - subtrahend);
  row.max = max;
  row.sum *= factor;
#pragma unroll
  for (int e = 0; e < elements_of_thread(C); ++e) row.o[e] *= factor;
#pragma unroll
  for (int i = 0; i < C.at_once; ++i) {
    const float weight = exponential(lse[i] - subtrahend);
    row.sum += weight;
    if (lse[i] == ptx::minus_infinity()) part[i] = {0, 0, 0, 0};  // it may hold a NaN
#pragma unroll
    for (int e = 0; e < elements_of_thread(C); ++e) row.o[e] = fmaf(element<C.dtype>(part[i], e), weight, row.o[e]);
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  ptx::griddepcontrol_launch_dependents();  // the next launch may get ready; it waits for the end of this one
  constexpr int kThreadsOfRow = threads_of_row(C);
  const int thread = static_cast<int>(threadIdx.x), of_cta = thread / kThreadsOfRow;
  const int column = (thread - of_cta * kThreadsOfRow) * elements_of_thread(C);
  const long long number = static_cast<long long>(blockIdx.x) * rows_of_cta(C) + of_cta;
  ptx::griddepcontrol_wait();
  if (of_cta >= rows_of_cta(C) || number >= p.rows) return;
  const RowPlace at = place_of(p, static_cast<unsigned>(number));
  const char* const o_part =
      static_cast<const char*>(p.o_parts) + (at.batch * p.o_parts_stride_batch + at.query * p.o_parts_stride_seqlen +
                                             at.head * p.o_parts_stride_head + column) *
                                                dtype_bytes(C.dtype);
  const float* const lse_part =
      p.lse_parts + at.batch * p.lse_parts_stride_batch + at.head * p.lse_parts_stride_head + at.query;

  RowSums<C> row{ptx::minus_infinity(), 0.0f, {}};
#pragma unroll 1
  for (int first = 0; first < p.parts; first += C.at_once) add_parts<C>(p, o_part, lse_part, first, row);

  const float subtrahend = subtrahend_of(row.max);
  float whole = row.sum;
  if constexpr (C.sink != Sink::none) {
    if (p.sink != nullptr) whole += exponential(p.sink[at.head] - subtrahend);
  }
  const float factor = whole == 0.0f ? 0.0f : 1.0f / whole;
  char* const o = static_cast<char*>(p.o) +
                  (at.batch * p.o_stride_batch + at.query * p.o_stride_seqlen + at.head * p.o_stride_head + column) *
                      dtype_bytes(C.o_dtype);
  store<C>(o, row.o, factor);
  if (column != 0 || p.lse == nullptr) return;
  constexpr float kLn2 = 0.6931471805599453f;
  const long long statistic =
      static_cast<long long>(at.batch * static_cast<unsigned>(p.heads_q) + at.head) * p.seqlen_q;
  p.lse[statistic + at.query] = subtrahend + ptx::lg2(row.sum) * kLn2;
}

}  // namespace tessera::merge
