// Results of O^T (transposed.cuh) leave from registers: a thread has eight columns side by side of each of its rows.
#pragma once

#include "fmha/softmax.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/epilogue.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/registers.cuh"
#include "ptx/address.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

template <Config C>
inline constexpr int kGroupsOfRows = C.tile_m / 8;  // in which a thread has two

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
__device__ __forceinline__ void store_transposed(const Params& p, const Part& part, int first_column, int first_row) {
  constexpr int kRowsOfLane = (C.tile_m + 31) / 32;
  // Where rows lie follows from this, and is not worth registers from part to part.
  const int lane = ptx::forget(static_cast<int>(threadIdx.x) % 32);
  unsigned long long places[kRowsOfLane];
#pragma unroll
  for (int i = 0; i < kRowsOfLane; ++i)
    places[i] = reinterpret_cast<unsigned long long>(row_place<C>(p, part, first_column, first_row, 32 * i + lane));
  const int columns = lane / 4 * 8, first = 2 * (lane % 4);
  if constexpr (is_dealt(C)) {
    if (part.slot >= 0) {
      RegistersOf<C>::store_f32_rows(places, first, columns * 4);
      return;
    }
  }
  RegistersOf<C>::store_16_bit_rows(places, first, columns * o_element_bytes(C.facts));
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
