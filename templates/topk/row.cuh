// A CTA's part of a row, its elements and their keys.
#pragma once

#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "ptx/math.cuh"
#include "spec/topk.h"

namespace tessera::topk {

struct Params {
  const void* scores;
  long long scores_stride_m;
  const int* lengths;
  const int* row_starts;
  const int* block_table;
  long long block_table_stride;
  const int* row_sequences;
  const int* offsets;
  const float* guesses;
  int* indices;
  long long indices_stride_m;
  void* values;
  long long values_stride_m;
  float* kth;
  int n;
  int sequences;
  int max_pages;
  int page_size;
};

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int thread_of_cta() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int lane_of_thread() { return thread_of_cta() % kWarp; }
__device__ __forceinline__ int warp_of_cta() { return thread_of_cta() / kWarp; }

// Vectors of 16 bytes are counted from the aligned one that has the row's first element: element j is element
// `head` + j of them.
struct Row {
  const unsigned char* aligned;  // the first vector
  int head;
  int length;
  int part;                    // vectors of a CTA's part, at most
  int first, end;              // this CTA's
  int whole_first, whole_end;  // those of them that have no other elements
};

template <Config C>
__device__ __forceinline__ Row row_of(const Params& p, int row, int rank) {
  constexpr int kBytes = dtype_bytes(C.dtype), kVector = vector_elements(C);
  int start = 0, length = p.n;
  if constexpr (C.range == RowRange::starts)
    start = min(max(static_cast<int>(ptx::ld_global_u32(p.row_starts + row)), 0), p.n);
  if constexpr (C.range != RowRange::all)
    length = min(max(static_cast<int>(ptx::ld_global_u32(p.lengths + row)), 0), p.n - start);
  const unsigned char* const begin =
      static_cast<const unsigned char*>(p.scores) + (row * p.scores_stride_m + start) * kBytes;
  const int misplaced = static_cast<int>(reinterpret_cast<unsigned long long>(begin) % 16);
  Row r{begin - misplaced, misplaced / kBytes, length, 0, 0, 0, 0, 0};
  const int vectors = length == 0 ? 0 : (r.head + length - 1) / kVector + 1;
  r.part = vectors == 0 ? 0 : (vectors - 1) / C.ctas + 1;
  r.first = min(rank * r.part, vectors);
  r.end = min(r.first + r.part, vectors);
  r.whole_first = max(r.first, r.head == 0 ? 0 : 1);
  r.whole_end = max(min(r.end, (r.head + length) / kVector), r.whole_first);
  return r;
}

// A vector's elements that are the row's, as bits.
template <Config C>
__device__ __forceinline__ unsigned elements_of_row(const Row& row, int vector) {
  constexpr int kVector = vector_elements(C);
  constexpr unsigned kAll = (1u << kVector) - 1;
  const int first = vector * kVector - row.head, behind = row.length - first;
  unsigned mask = behind >= kVector ? kAll : (1u << behind) - 1;
  if (first < 0) mask &= kAll << -first;
  return mask;
}

// Whether a vector of this CTA's has the row's elements only.
__device__ __forceinline__ bool is_whole(const Row& row, int vector) {
  return vector >= row.whole_first && vector < row.whole_end;
}

// Elements that are not the row's are zeros: nothing beside the row is read.
template <Config C>
__device__ __forceinline__ ptx::Vector4 load_vector(const Row& row, int vector) {
  constexpr int kVector = vector_elements(C), kBytes = dtype_bytes(C.dtype);
  const unsigned char* const from = row.aligned + static_cast<long long>(vector) * 16;
  if (is_whole(row, vector)) return ptx::ld_global_v4_stream(from);
  const unsigned mask = elements_of_row<C>(row, vector);
  unsigned words[4] = {};
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    if ((mask >> i & 1) != 0) {
      if constexpr (kBytes == 4) {
        words[i] = ptx::ld_global_u32(from + 4 * i);
      } else {
        words[i / 2] |= ptx::ld_global_u16(from + 2 * i) << (16 * (i % 2));
      }
    }
  return {words[0], words[1], words[2], words[3]};
}

// Whole numbers in the order of the elements; 0 for a NaN.
template <Config C>
__device__ __forceinline__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes +0
  const unsigned ordered = bits ^ (static_cast<unsigned>(static_cast<int>(bits) >> 31) | 0x80000000u);
  return x != x ? 0u : ordered >> (32 - key_bits(C));
}

// A number that x is not smaller than where its key is not below `least`, which is not 0. Of keys above infinity's it
// is a NaN, than which nothing is larger; of keys that no number has, below that of -inf, it is -inf.
template <Config C>
__device__ __forceinline__ float least_number(unsigned least) {
  const unsigned ordered = least << (32 - key_bits(C));
  if (ordered <= 0x007fffffu) return ptx::minus_infinity();
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

// The number of a key, -inf for NaN.
template <Config C>
__device__ __forceinline__ float number_of_key(unsigned key) {
  constexpr int kShift = 32 - key_bits(C);
  const unsigned ordered = key << kShift, bits = ordered & 0x7fffffffu;
  if (key == 0) return ptx::minus_infinity();
  return __uint_as_float((ordered & 0x80000000u) != 0 ? bits : ~(ordered | ((1u << kShift) - 1)));
}

template <Config C>
__device__ __forceinline__ void numbers_of(const ptx::Vector4& v, float (&x)[vector_elements(C)]) {
  const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < vector_elements(C); ++i) {
    if constexpr (C.dtype == DType::f32) {
      x[i] = __uint_as_float(words[i]);
    } else {
      x[i] = ptx::cvt_f32<C.dtype>(static_cast<unsigned short>(words[i / 2] >> (16 * (i % 2))));
    }
  }
}

}  // namespace tessera::topk
