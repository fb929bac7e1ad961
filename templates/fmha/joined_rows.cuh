// Rows of O by vectors of four columns, as warps that share a tile's keys join them: warps.cuh.
#pragma once

#include "fmha/epilogue.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Vectors of four columns of a thread's row, as its lane of a quad has them: those of 4-bit and 8-bit V lie side by
// side, else two and two of sixteen.
template <Config C>
__device__ __forceinline__ ptx::Vector4 vector_of_row(const Accumulator<C>& output, int i, int r) {
  if constexpr (has_eights(C)) return four_of_eight<C>(output, i / 2, r, i % 2);
  if constexpr (has_fours(C)) return columns_of<C>(output, i, r);
  const float* const of_row = output + 8 * i + 2 * r;
  return {__float_as_uint(of_row[0]), __float_as_uint(of_row[1]), __float_as_uint(of_row[4]),
          __float_as_uint(of_row[5])};
}
// Whether a tile's O is a part, in fp32.
template <Config C>
__device__ __forceinline__ bool is_part(const TileIndex& tile) {
  return is_dealt(C) ? tile.split >= 0 : is_split(C);
}
// Where a row of a tile's O, or of a part's, begins; null: it is none of the head's.
template <Config C>
__device__ __forceinline__ char* row_to_store(const Params& p, const TileIndex& tile, int row) {
  if (row >= rows_of_tile_head<C>(p, tile)) return nullptr;
  if (is_part<C>(tile)) return reinterpret_cast<char*>(p.partial_o + part_index<C>(p, tile, row) * C.facts.head_dim_v);
  const HeadIndex at = head_of<C>(p, tile);
  return o_row_of<C>(p, at, first_query_of<C>(p, tile, at), row);
}
template <Config C>
__device__ __forceinline__ void store_vector(char* to, const TileIndex& tile, int i, const ptx::Vector4& four) {
  if (to == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool is_wide = C.facts.output == Output::unnormalized || is_part<C>(tile);
  const auto packed = [](unsigned x, unsigned y) {
    return ptx::cvt_pack<o_dtype(C.facts)>(__uint_as_float(x), __uint_as_float(y));
  };
  if constexpr (has_fours(C) || has_eights(C)) {
    const int column = has_eights(C) ? i / 2 * 32 + lane * 8 + i % 2 * 4 : i * 16 + lane * 4;
    if (is_wide) {
      ptx::st_global_v4(to + 4 * column, four);
    } else {
      ptx::st_global_v2(to + 2 * column, packed(four.x, four.y), packed(four.z, four.w));
    }
  } else {
    const int column = i * 16 + lane * 2;
    if (is_wide) {
      ptx::st_global_v2(to + 4 * column, four.x, four.y);
      ptx::st_global_v2(to + 4 * column + 32, four.z, four.w);
    } else {
      ptx::st_global_u32(to + 2 * column, packed(four.x, four.y));
      ptx::st_global_u32(to + 2 * column + 16, packed(four.z, four.w));
    }
  }
}

}  // namespace tessera::fmha
