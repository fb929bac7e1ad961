// The running softmax of softmax.cuh with fewer instructions for each score: beside 8-bit products there is time for
// one exponential, and little else.
//
// Scores become exponents first, relative to the reference that rows have. Whether one of them is too large is seen
// from their bits: of floats above zero the larger has the larger bits, those below count as less than any, and three
// are compared at once. Only if one is, or where rows have no reference yet, are the rows' maxima found; exponents are
// then lowered by what the reference rises.
#pragma once

#include "fmha/softmax.cuh"
#include "ptx/math.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// References become what the maxima of exponents ask for. `raise`: is then subtracted from exponents; `correction`:
// what was summed before is multiplied with it.
__device__ __forceinline__ void raise_references(RowStatistics& rows, const float (&max)[2], float (&raise)[2],
                                                 float (&correction)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float of_row = max_of_quad(max[r]);
    const bool is_blank = rows.reference[r] == ptx::minus_infinity(), sees_key = of_row != ptx::minus_infinity();
    raise[r] = of_row - kLowered;
    if (!is_blank) raise[r] = fmaxf(raise[r], 0.0f);
    if (!sees_key) raise[r] = 0.0f;
    if (sees_key || !is_blank) rows.reference[r] = rows.subtrahend(r) + raise[r];
    correction[r] = is_blank ? 1.0f : ptx::ex2(-raise[r]);
    rows.sum[r] *= correction[r];
  }
}

}  // namespace tessera::fmha
