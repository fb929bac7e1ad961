// Results of O^T (transposed.cuh) leave from registers: a thread has eight columns side by side of each of its rows.
#pragma once

#include "fmha/softmax.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/epilogue.cuh"
#include "fmha_latent/params.cuh"
#include "ptx/address.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

inline constexpr int kTransposedTiles = kHeadDimV / 2 / 64;  // of a warpgroup's columns
template <Config C>
inline constexpr int kGroupsOfRows = C.tile_m / 8;  // in which a thread has two
// [tile][group of rows][column of two][row of two]
template <Config C>
using TransposedOutput = float[kTransposedTiles][C.tile_m / 2];

// Where a row of the tile goes, from `first_column` on; null: it is none of the sequence's.
template <Config C>
__device__ __forceinline__ char* row_place(const Params& p, const Part& part, int first_column, int first_row,
                                           int row) {
  const int own = first_row + row;
  if (own >= rows_of_sequence<C>(p)) return nullptr;
  if (is_dealt(C) && part.slot >= 0)
    return reinterpret_cast<char*>(p.partial_o + part_row<C>(p, part.slot, row) * kHeadDimV + first_column);
  return o_row_of<C>(p, part.sequence, own) + o_element_bytes(C.facts) * first_column;
}

// `first_column`: of the warp's 64. Each lane finds where one or two rows go, and hands that to those who store them.
template <Config C>
__device__ __forceinline__ void store_transposed(const Params& p, const Part& part, const TransposedOutput<C>& output,
                                                 int first_column, int first_row) {
  constexpr int kRowsOfLane = (C.tile_m + 31) / 32;
  // Where rows lie follows from this, and is not worth registers from part to part.
  const int lane = ptx::forget(static_cast<int>(threadIdx.x) % 32);
  unsigned long long places[kRowsOfLane];
#pragma unroll
  for (int i = 0; i < kRowsOfLane; ++i)
    places[i] = reinterpret_cast<unsigned long long>(row_place<C>(p, part, first_column, first_row, 32 * i + lane));
  const bool is_part = is_dealt(C) && part.slot >= 0;
#pragma unroll
  for (int i = 0; i < kGroupsOfRows<C>; ++i) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const unsigned long long place = __shfl_sync(0xffffffff, places[i / 4], 8 * (i % 4) + 2 * (lane % 4) + e);
      if (place == 0) continue;
      float values[8];
#pragma unroll
      for (int j = 0; j < kTransposedTiles; ++j) {
        values[2 * j] = output[j][4 * i + e];
        values[2 * j + 1] = output[j][4 * i + 2 + e];
      }
      if (is_part) {
        float* const to = reinterpret_cast<float*>(place) + lane / 4 * 8;
#pragma unroll
        for (int j = 0; j < 8; j += 4)
          ptx::st_global_v4(to + j, {__float_as_uint(values[j]), __float_as_uint(values[j + 1]),
                                     __float_as_uint(values[j + 2]), __float_as_uint(values[j + 3])});
        continue;
      }
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = ptx::cvt_pack<C.facts.dtype>(values[2 * j], values[2 * j + 1]);
      ptx::st_global_v4(reinterpret_cast<char*>(place) + o_element_bytes(C.facts) * (lane / 4 * 8),
                        {words[0], words[1], words[2], words[3]});
    }
  }
}

// What is known of a row of the tile: its reference, times log2(e), -inf where no key was visible; its sum.
template <Config C>
__device__ __forceinline__ void store_statistic(const Params& p, const Part& part, int first_row, int row,
                                                float reference, float sum) {
  const int own = first_row + row;
  if (own >= rows_of_sequence<C>(p)) return;
  if constexpr (is_dealt(C)) {
    if (part.slot >= 0) {
      ptx::st_global_v2(p.partial_sums + 2 * part_row<C>(p, part.slot, row), __float_as_uint(reference),
                        __float_as_uint(sum));
      return;
    }
  }
  const float subtrahend = reference == ptx::minus_infinity() ? 0.0f : reference;
  if (p.lse != nullptr) p.lse[statistic_of<C>(p, part.sequence, own)] = (subtrahend + ptx::lg2(sum)) * fmha::kLn2;
}

}  // namespace tessera::fmha_latent
