// Results leave from registers, each row where it is one of the sequence's.
#pragma once

#include "fmha/softmax.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/registers.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// Named barriers: 0 is __syncthreads(); a consumer warpgroup among itself; both.
inline constexpr int kBarrierOfWarpgroup = 1;
inline constexpr int kBarrierOfConsumers = 3;

// Of a slot's row in the workspace.
template <Config C>
__device__ __forceinline__ long long part_row(const Params& p, int slot, int row) {
  return static_cast<long long>(slot) * rows_of_slot<C>(p) + row;
}

// `row`: of the sequence.
template <Config C>
__device__ __forceinline__ long long statistic_of(const Params& p, int sequence, int row) {
  const RowPlace at = place_of<C>(p, sequence, row);
  return (static_cast<long long>(at.batch) * p.heads_q + at.head) * p.seqlen_q + at.query;
}
template <Config C>
__device__ __forceinline__ char* o_row_of(const Params& p, int sequence, int row) {
  const RowPlace at = place_of<C>(p, sequence, row);
  return static_cast<char*>(p.o_rows) +
         o_element_bytes(C.facts) *
             (at.batch * p.o_stride_batch + at.head * p.o_stride_head + at.query * p.o_stride_seqlen);
}

// One thread of four writes what is known of its rows. `first_row`: of the tile; `row`: of it, the thread's first.
template <Config C>
__device__ __forceinline__ void store_statistics(const Params& p, const Part& part, const fmha::RowStatistics& rows,
                                                 int first_row, int row) {
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = first_row + row + 8 * r;
    if (own >= rows_of_sequence<C>(p)) continue;
    if constexpr (is_dealt(C)) {
      if (part.slot >= 0) {
        ptx::st_global_v2(p.partial_sums + 2 * part_row<C>(p, part.slot, row + 8 * r),
                          __float_as_uint(rows.reference[r]), __float_as_uint(rows.sum[r]));
        continue;
      }
    }
    if (p.lse != nullptr)
      p.lse[statistic_of<C>(p, part.sequence, own)] = (rows.subtrahend(r) + ptx::lg2(rows.sum[r])) * fmha::kLn2;
  }
}

// Half of a row: columns from `first_column` on.
template <Config C>
__device__ __forceinline__ void store_output(const Params& p, const Part& part, int first_column, int first_row,
                                             int row) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  char* of_row[2];
  if (is_dealt(C) && part.slot >= 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* const to = p.partial_o + part_row<C>(p, part.slot, row + 8 * r) * kHeadDimV + first_column + 2 * lane;
      of_row[r] = first_row + row + 8 * r < rows_of_sequence<C>(p) ? reinterpret_cast<char*>(to) : nullptr;
    }
    if constexpr (is_dealt(C)) RegistersOf<C>::store_f32_rows(of_row);
    return;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = first_row + row + 8 * r;
    // Neighbouring lanes exchange words: each has 16 bytes of every second chunk.
    char* const to =
        o_row_of<C>(p, part.sequence, own) + o_element_bytes(C.facts) * (first_column + lane % 2 * 8 + lane / 2 * 4);
    of_row[r] = own < rows_of_sequence<C>(p) ? to : nullptr;
  }
  RegistersOf<C>::store_16_bit_rows(of_row, lane % 2);
}

}  // namespace tessera::fmha_latent
