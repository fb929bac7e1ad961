// What lies outside of every query's range: -inf, by warps that have nothing else to do.
#pragma once

#include "indexer/ranges.cuh"
#include "ptx/global.cuh"
#include "spec/indexer.h"

namespace tessera::indexer {

inline constexpr unsigned kMinusInfinity = 0xff800000u;  // its upper half is that of bf16

template <Config C>
__device__ __forceinline__ void store_minus_infinity(unsigned char* p) {
  if constexpr (C.score_dtype == DType::f32) {
    ptx::st_global_u32(p, kMinusInfinity);
  } else {
    *reinterpret_cast<unsigned short*>(p) = static_cast<unsigned short>(kMinusInfinity >> 16);
  }
}

// A warp: elements [begin, end) of a row, whole vectors where they are aligned.
template <Config C>
__device__ __forceinline__ void fill(unsigned char* row, int begin, int end) {
  constexpr int kBytes = dtype_bytes(C.score_dtype), kVector = 16 / kBytes;
  constexpr unsigned kWord = C.score_dtype == DType::f32 ? kMinusInfinity : (kMinusInfinity | kMinusInfinity >> 16);
  if (begin >= end) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto address = reinterpret_cast<unsigned long long>(row + static_cast<long long>(begin) * kBytes);
  const int head = min((kVector - static_cast<int>(address % 16) / kBytes) % kVector, end - begin);
  const int vectors = (end - begin - head) / kVector, tail = begin + head + vectors * kVector;
  if (lane < head) store_minus_infinity<C>(row + static_cast<long long>(begin + lane) * kBytes);
  unsigned char* const body = row + static_cast<long long>(begin + head) * kBytes;
#pragma unroll 1
  for (int i = lane; i < vectors; i += kWarp) ptx::st_global_v4(body + 16 * i, {kWord, kWord, kWord, kWord});
  if (tail + lane < end) store_minus_infinity<C>(row + static_cast<long long>(tail + lane) * kBytes);
}

// Warps of the whole grid share out pieces of rows. `warp`: of the CTA's that do this.
template <Config C>
__device__ __forceinline__ void fill_outside(const Params& p, int warp) {
  const int pieces = (p.columns + kFillColumns - 1) / kFillColumns;
  const long long all = static_cast<long long>(p.m) * pieces;
  const long long stride = static_cast<long long>(gridDim.x) * fill_warps(C);
#pragma unroll 1
  for (long long i = static_cast<long long>(blockIdx.x) * fill_warps(C) + warp; i < all; i += stride) {
    const int query = static_cast<int>(i / pieces), begin = static_cast<int>(i % pieces) * kFillColumns;
    const int end = min(begin + kFillColumns, p.columns);
    Range seen = range_of_query<C>(p, query);
    if constexpr (C.score_columns == ScoreColumns::compressed) seen = {0, seen.end - seen.begin};
    auto* const row = static_cast<unsigned char*>(p.scores) + query * p.scores_stride_m * dtype_bytes(C.score_dtype);
    fill<C>(row, begin, min(end, seen.begin));
    fill<C>(row, max(begin, seen.end), end);
  }
}

}  // namespace tessera::indexer
