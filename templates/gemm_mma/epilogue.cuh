// From a warp's sums to D: scale, add, activate, round, and out, straight from the registers.
//
// A thread's sums are pairs of columns, 4 or 8 bytes. Pairs of fp32 that a quad of threads stores side by side fill a
// sector of 32 bytes. Of 16-bit types a quad first exchanges what it has of four groups of eight columns, so that each
// thread stores the 16 bytes of one. Where rows of D do not lie multiples of these apart, or end within, elements are
// stored one by one. So are those of D transposed, where a thread's pair is of two rows, and the eight threads that
// have the same pair of rows store eight neighbours of each.
//
// Sums of integers become fp32 first, with one rounding, or are what is stored.
//
// D has no staging memory and no tensor map: the ring takes nearly all shared memory there is, and a tile's stores,
// each of whole sectors, are a few hundred instructions among some ten thousand products.
#pragma once

#include "gemm/finish.cuh"
#include "gemm/params.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

// Rows of 16, groups of eight columns, and a thread's four sums: two columns of row lane / 4, and of the row 8 further.
template <bool kIsInteger>
struct SumType {
  using Type = float;
};
template <>
struct SumType<true> {
  using Type = int;
};
template <Config C>
using Sum = typename SumType<is_integer(C)>::Type;
template <Config C>
using UnitSums = Sum<C>[unit_groups(C)][4];
template <Config C>
using Sums = Sum<C>[warp_m(C) / kBlock][warp_n(C) / 8][4];

template <Config C>
__device__ __forceinline__ void clear(Sums<C>& sums) {
#pragma unroll
  for (int m = 0; m < warp_m(C) / kBlock; ++m) {
#pragma unroll
    for (int n = 0; n < warp_n(C) / 8; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[m][n][v] = 0;
    }
  }
}

// Thread q of a quad has word i of each group q afterwards, and had word q of each group i.
__device__ __forceinline__ void transpose_quad(unsigned (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool is_upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      unsigned &low = words[i], &high = words[i + distance];
      const unsigned received = __shfl_xor_sync(0xffffffff, is_upper ? low : high, distance);
      if (is_upper) {
        low = received;
      } else {
        high = received;
      }
    }
  }
}

template <Config C>
struct Epilogue {
  static constexpr int kElementBytes = dtype_bytes(C.facts.d_dtype);
  static constexpr int kStoreBytes = kElementBytes == 2 ? 16 : 8;
  static constexpr int kStored = kStoreBytes / kElementBytes;
  const gemm::Params& p;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float alpha = gemm::scaled_alpha<has_tensor_scales(C)>(p);
  const bool is_in_vectors = (p.ldd | p.d_stride_l) * kElementBytes % kStoreBytes == 0;

  __device__ __forceinline__ void store_words(const unsigned (&words)[kStoreBytes / 4], int row, int column,
                                              int batch) const {
    if (row >= p.m) return;
    const long long index = batch * p.d_stride_l + row * p.ldd + column;
    if (is_in_vectors && column + kStored <= p.n) {
      unsigned char* const to = static_cast<unsigned char*>(p.d_pointer) + index * kElementBytes;
      if constexpr (kElementBytes == 2) {
        ptx::st_global_v4(to, {words[0], words[1], words[2], words[3]});
      } else {
        ptx::st_global_v2(to, words[0], words[1]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kStored; ++i) {
      if (column + i >= p.n) continue;
      if constexpr (kElementBytes == 2) {
        static_cast<unsigned short*>(p.d_pointer)[index + i] =
            static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      } else {
        static_cast<unsigned*>(p.d_pointer)[index + i] = words[i];
      }
    }
  }

  __device__ __forceinline__ void finish(float (&pair)[2], const Sum<C> (&sums)[4], int half, int row, int column,
                                         int batch) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) pair[i] = static_cast<float>(sums[2 * half + i]);
    gemm::finish_pair<C.facts, C.facts.d_dtype, is_swapped(C)>(pair, p, alpha, row, column + lane % 4 * 2, batch);
  }
  // A pair of columns as bits, of fp32 or of integers.
  __device__ __forceinline__ void finish_words(unsigned (&words)[2], const Sum<C> (&sums)[4], int half, int row,
                                               int column, int batch) const {
    if constexpr (stores_sums(C)) {
#pragma unroll
      for (int i = 0; i < 2; ++i) words[i] = static_cast<unsigned>(sums[2 * half + i]);
    } else {
      float pair[2];
      finish(pair, sums, half, row, column, batch);
#pragma unroll
      for (int i = 0; i < 2; ++i) words[i] = __float_as_uint(pair[i]);
    }
  }

  // D transposed: `row` is a column of it.
  __device__ __forceinline__ void store_transposed(const Sum<C> (&sums)[4], int half, int row, int column,
                                                   int batch) const {
    unsigned words[2];
    finish_words(words, sums, half, row, column, batch);
    if (row >= p.m) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int of_d = column + lane % 4 * 2 + i;
      if (of_d >= p.n) continue;
      const long long index = batch * p.d_stride_l + of_d * p.ldd + row;
      if constexpr (kElementBytes == 2) {
        static_cast<unsigned short*>(p.d_pointer)[index] =
            static_cast<unsigned short>(ptx::cvt_pack<C.facts.d_dtype>(__uint_as_float(words[i]), 0.0f));
      } else {
        static_cast<unsigned*>(p.d_pointer)[index] = words[i];
      }
    }
  }

  // 16 rows and the columns of a unit; `first_row` and `column` are the first.
  __device__ __forceinline__ void store_unit(const UnitSums<C>& sums, int first_row, int column, int batch) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if constexpr (is_swapped(C)) {
        store_transposed(sums[0], half, row, column, batch);
      } else if constexpr (kElementBytes == 2) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float pair[2];
          finish(pair, sums[i], half, row, column + 8 * i, batch);
          words[i] = ptx::cvt_pack<C.facts.d_dtype>(pair[0], pair[1]);
        }
        transpose_quad(words);
        // c may be d: the others of the quad have read it.
        if constexpr (C.facts.c == Addend::matrix) __syncwarp();
        store_words(words, row, column + 8 * (lane % 4), batch);
      } else {
        unsigned words[2];
        finish_words(words, sums[0], half, row, column, batch);
        store_words(words, row, column + lane % 4 * 2, batch);
      }
    }
  }

  // A warp's part of a tile, 16 rows after the other by one copy of the code: what becomes of a sum may be a hundred
  // instructions. Registers cannot be indexed, so the sums move up each time.
  __device__ __forceinline__ void store(Sums<C>& sums, int row, int column, int batch) const {
    constexpr int kBlocks = warp_m(C) / kBlock;
#pragma unroll 1
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < warp_n(C) / 8; n += unit_groups(C)) {
        UnitSums<C> unit;
#pragma unroll
        for (int i = 0; i < unit_groups(C) * 4; ++i) unit[i / 4][i % 4] = sums[0][n + i / 4][i % 4];
        store_unit(unit, row + m * kBlock, column + 8 * n, batch);
      }
#pragma unroll
      for (int i = 1; i < kBlocks; ++i) {
#pragma unroll
        for (int n = 0; n < warp_n(C) / 8; ++n) {
#pragma unroll
          for (int v = 0; v < 4; ++v) sums[i - 1][n][v] = sums[i][n][v];
        }
      }
    }
  }
};

}  // namespace tessera::gemm_mma
