// Sums of O beside an accumulator of few fraction bits: see spec/fmha_transposed.h. Each thread keeps its own in shared
// memory, in the order of its registers, so that nobody waits for another: fp32, or where keeps_f16_sums() pairs of f16
// (a word holds two columns). Those are O times 2^k of its row, such that O / sum, a mean of V, reaches half of f16's
// range. Where keeps_sums_in_o() they lie in the rows of o that the thread's own are, which the tile overwrites in the
// end: shared memory has no room for them, and once in a thousand keys the L2 is near enough.
//
// A thread's two rows have factors, what kept sums are multiplied with to be O again. They follow when references move,
// and lie behind a warpgroup's sums; with a sign: there are no sums.
#pragma once

#include "fmha/epilogue.cuh"
#include "fmha/matmul.cuh"
#include "fmha/registers.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Of the thread's first four words, and of its factors.
template <Config C>
__device__ __forceinline__ unsigned promoted_address(unsigned smem, int warpgroup) {
  return smem + smem_layout(C).promoted.offset + warpgroup * promoted_slot_bytes(C) +
         static_cast<unsigned>(threadIdx.x) % kWarpgroupThreads * 16;
}
template <Config C>
__device__ __forceinline__ unsigned promoted_factors(unsigned smem, int warpgroup) {
  return smem + smem_layout(C).promoted.offset + (warpgroup + 1) * promoted_slot_bytes(C) - kWarpgroupThreads * 8 +
         static_cast<unsigned>(threadIdx.x) % kWarpgroupThreads * 8;
}

template <Config C>
__device__ constexpr int promoted_words() {
  return promoted_sums_bytes(C) / 4 / kWarpgroupThreads;
}

template <Config C>
__device__ __forceinline__ void forget_promoted(unsigned smem, int warpgroup) {
  ptx::st_shared_v2_f32(promoted_factors<C>(smem, warpgroup), -1.0f, -1.0f);
}

// References move.
template <Config C>
__device__ __forceinline__ void scale_promoted(unsigned smem, int warpgroup, const float (&factor)[2]) {
  const unsigned address = promoted_factors<C>(smem, warpgroup);
  ptx::st_shared_v2_f32(address, ptx::ld_shared_f32(address) * factor[0], ptx::ld_shared_f32(address + 4) * factor[1]);
}

// Where a thread's sums are, four words at a time.
template <Config C>
struct PromotedSums {
  unsigned address;      // in shared memory
  char* of_row[2] = {};  // or in o, of this thread's rows: null where there is none
};
// `row`: of the tile's head, the thread's first.
template <Config C>
__device__ __forceinline__ PromotedSums<C> promoted_sums(const Params& p, const TileIndex& tile, int row, unsigned smem,
                                                         int warpgroup) {
  PromotedSums<C> sums{promoted_address<C>(smem, warpgroup)};
  if constexpr (keeps_sums_in_o(C)) {
    if constexpr (shares_tiles<C>()) {
      if (!works_on(tile, warpgroup)) return sums;
    }
    const HeadIndex at = head_of<C>(p, tile);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r >= rows_of_tile_head<C>(p, tile)) continue;
      sums.of_row[r] =
          o_row_of<C>(p, at, first_query_of<C>(p, tile, at), row + 8 * r) + static_cast<int>(threadIdx.x) % 4 * 16;
    }
  }
  return sums;
}

// Sums in rows of o were read for the last time: other lanes overwrite them next, by ordinary stores.
__device__ __forceinline__ void give_up_sums() { __syncwarp(); }

// O becomes the whole sum.
template <Config C>
__device__ __forceinline__ void add_promoted(const PromotedSums<C>& kept, unsigned smem, int warpgroup) {
  const unsigned factors = promoted_factors<C>(smem, warpgroup);
  const float factor[2] = {ptx::ld_shared_f32(factors), ptx::ld_shared_f32(factors + 4)};
  if (__float_as_int(factor[0]) < 0) return;
  if constexpr (keeps_sums_in_o(C)) {
    RegistersOf<C>::add_promoted(kept.of_row, factor);
  } else {
    RegistersOf<C>::add_promoted(kept.address, factor);
  }
}

// 2^k of a row for what is kept as f16. `sum`: of this thread's columns. Of e, that of the row's sum, at least -100,
// |O| is at most 448 (1 + 2^-4) 2^(e + 1), and 2^(6 - e) brings it below 2^16 - 2^5.
__device__ __forceinline__ float factor_to_f16(float sum) {
  const int exponent = __float_as_int(fmaxf(sum_of_quad(sum), 0x1p-100f)) & 0x7f800000;
  return __int_as_float(((2 * 127 + kPromotedShift) << 23) - exponent);
}

// O, the whole sum, is kept, and may begin anew. `sum`: of this thread's columns of its rows, of the keys in O and
// perhaps of more.
template <Config C>
__device__ __forceinline__ void keep_promoted(const PromotedSums<C>& kept, const float (&sum)[2], unsigned smem,
                                              int warpgroup) {
  float up[2] = {1.0f, 1.0f}, down[2] = {1.0f, 1.0f};
  if constexpr (keeps_f16_sums(C)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      up[r] = factor_to_f16(sum[r]);
      down[r] = __int_as_float(((2 * 127) << 23) - __float_as_int(up[r]));  // of a power of two the reciprocal
    }
  }
  if constexpr (keeps_sums_in_o(C)) {
    RegistersOf<C>::keep_promoted(kept.of_row, up);
  } else {
    RegistersOf<C>::keep_promoted(kept.address, up);
  }
  ptx::st_shared_v2_f32(promoted_factors<C>(smem, warpgroup), down[0], down[1]);
}

}  // namespace tessera::fmha
