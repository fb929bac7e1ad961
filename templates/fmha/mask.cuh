// Scores that do not count become -inf: those of keys that a row does not see.
#pragma once

#include "fmha/key_blocks.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "ptx/math.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Columns of a thread's two rows that count, behind the thread's own: [begin, limit).
struct VisibleColumns {
  int limits[2];
  int begins[2] = {0, 0};
};
// `row`: the query of this thread's first row; the second is 8 further. `first_key`: of the block.
template <Config C>
__device__ __forceinline__ VisibleColumns visible_columns(const Params& p, const Lengths& lengths, int row,
                                                          int first_key) {
  const int own_column = first_key + 2 * (static_cast<int>(threadIdx.x) % 4);
  VisibleColumns columns{
      {visible_end<C>(p, lengths, row) - own_column, visible_end<C>(p, lengths, row + 8) - own_column}};
  if constexpr (hides_first_keys(C.facts)) {
    columns.begins[0] = visible_keys<C>(p, lengths, row).begin - own_column;
    columns.begins[1] = visible_keys<C>(p, lengths, row + 8).begin - own_column;
  }
  return columns;
}

// A thread's columns are constants plus 2 (t % 4), so each value costs one comparison with a constant. All are
// multiplied with `factor` first: one loop for both rare cases takes less time to compile than two.
template <Config C>
__device__ __forceinline__ void scale_and_mask(Scores<C>& scores, const Params& p, const Lengths& lengths, float factor,
                                               int row, int first_key) {
  const VisibleColumns columns = visible_columns<C>(p, lengths, row, first_key);
#pragma unroll
  for (int v = 0; v < C.tile_n / 2; ++v) {
    const bool is_before = hides_first_keys(C.facts) && 8 * (v / 4) + v % 2 < columns.begins[v / 2 % 2];
    const bool is_behind = 8 * (v / 4) + v % 2 >= columns.limits[v / 2 % 2];
    scores[v] = !is_before && !is_behind ? scores[v] * factor : ptx::minus_infinity();
  }
}

}  // namespace tessera::fmha
