// Results to global memory.
#pragma once

#include "topk/cut.cuh"

namespace tessera::topk {

// What an index is written as.
template <Config C>
struct Target {
  int* indices;
  unsigned char* values;
  const unsigned char* elements;  // the row's first
  const int* table;               // of the row's sequence; null: none
  int offset;
  int max_pages, page_size;
};

template <Config C>
__device__ __forceinline__ Target<C> target_of(const Params& p, const Row& row, int i) {
  constexpr int kBytes = dtype_bytes(C.dtype);
  Target<C> t{p.indices + i * p.indices_stride_m,
              nullptr,
              row.aligned + row.head * kBytes,
              nullptr,
              0,
              p.max_pages,
              p.page_size};
  if constexpr (C.values == WithValues::on)
    t.values = static_cast<unsigned char*>(p.values) + i * p.values_stride_m * kBytes;
  if constexpr (C.index_form == IndexForm::pages) {
    const int sequence = p.row_sequences != nullptr ? static_cast<int>(ptx::ld_global_u32(p.row_sequences + i)) : i;
    if (sequence >= 0 && sequence < p.sequences) t.table = p.block_table + sequence * p.block_table_stride;
  }
  if constexpr (C.index_form == IndexForm::offsets) t.offset = static_cast<int>(ptx::ld_global_u32(p.offsets + i));
  return t;
}

template <Config C>
__device__ __forceinline__ void write(const Target<C>& t, int place, int column) {
  int index = column + t.offset;
  if constexpr (C.index_form == IndexForm::pages) {
    const int page = column / t.page_size;
    const int entry =
        t.table != nullptr && page < t.max_pages ? static_cast<int>(ptx::ld_global_u32(t.table + page)) : -1;
    index = entry < 0 ? -1 : entry * t.page_size + column % t.page_size;
  }
  ptx::st_global_u32(t.indices + place, static_cast<unsigned>(index));
  if constexpr (C.values == WithValues::on) {
    constexpr int kBytes = dtype_bytes(C.dtype);
    const unsigned char* const from = t.elements + static_cast<long long>(column) * kBytes;
    if constexpr (kBytes == 4) {
      ptx::st_global_u32(t.values + 4 * place, ptx::ld_global_u32(from));
    } else {
      ptx::st_global_u16(t.values + 2 * place, ptx::ld_global_u16(from));
    }
  }
}

// Behind the last result.
template <Config C>
__device__ __forceinline__ void pad(const Target<C>& t, int taken, int thread, int threads) {
  for (int place = taken + thread; place < C.k; place += threads) {
    ptx::st_global_u32(t.indices + place, ~0u);
    if constexpr (C.values == WithValues::on) {
      if constexpr (C.dtype == DType::f32) {
        ptx::st_global_u32(t.values + 4 * place, 0xff800000u);
      } else {
        ptx::st_global_u16(t.values + 2 * place, C.dtype == DType::f16 ? 0xfc00u : 0xff80u);
      }
    }
  }
}

// Pairs by key, the largest first, of equals the j that stands before; absent ones are zeros.
template <Config C>
__device__ __forceinline__ void sort_pairs(unsigned pairs) {
  constexpr int kPairs = sorted_pairs(C);
#pragma unroll 1
  for (int size = 2; size <= kPairs; size *= 2) {
#pragma unroll 1
    for (int distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
#pragma unroll 1
      for (int i = thread_of_cta(); i < kPairs / 2; i += C.threads) {
        const int low = 2 * i - (i & (distance - 1)), high = low + distance;
        unsigned a_rest, a_key, b_rest, b_key;
        ptx::ld_shared_v2(pairs + 8 * low, a_rest, a_key);
        ptx::ld_shared_v2(pairs + 8 * high, b_rest, b_key);
        const bool is_less = a_key < b_key || (a_key == b_key && a_rest < b_rest);
        if (is_less == ((low & size) == 0)) {
          ptx::st_shared_v2(pairs + 8 * low, b_rest, b_key);
          ptx::st_shared_v2(pairs + 8 * high, a_rest, a_key);
        }
      }
    }
  }
  __syncthreads();
}

// j as the lower half of a sorted pair: larger where it stands before. Above 0, which is no result's.
template <Config C>
__device__ __forceinline__ unsigned rest_of(int column) {
  return C.ties == Ties::smaller ? 0x80000000u - static_cast<unsigned>(column) : static_cast<unsigned>(column) + 1;
}
template <Config C>
__device__ __forceinline__ int column_of(unsigned rest) {
  return static_cast<int>(C.ties == Ties::smaller ? 0x80000000u - rest : rest - 1);
}

}  // namespace tessera::topk
