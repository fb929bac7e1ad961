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

// Scores, times `multiplier`, become exponents. `subtrahend`: of this thread's rows. `top`: the bits of each row's
// largest exponent in this thread, if that is above zero; else of any.
template <int kCount>
__device__ __forceinline__ void to_exponents(float (&scores)[kCount], float multiplier, const float (&subtrahend)[2],
                                             int (&top)[2]) {
  int partial[4];
#pragma unroll
  for (int v = 0; v < kCount; v += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) scores[v + i] = fmaf(scores[v + i], multiplier, -subtrahend[i / 2 % 2]);
    const auto bits = [&](int i) { return __float_as_int(scores[v + i]); };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int of_pair = max(bits(2 * i), bits(2 * i + 1));
      partial[i] = v == 0 ? of_pair : max(partial[i], of_pair);
    }
  }
  top[0] = max(partial[0], partial[2]);
  top[1] = max(partial[1], partial[3]);
}

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

// Values of a step of P's product, which pack() makes registers of. Probabilities come in such parts.
inline constexpr int kPart = 16;

// Exponents [begin, begin + kPart) become probabilities.
template <int kCount>
__device__ __forceinline__ void raise_to_powers(float (&exponents)[kCount], int begin) {
#pragma unroll
  for (int v = begin; v < begin + kPart; ++v) exponents[v] = ptx::ex2(exponents[v]);
}

// Of these the sums, of which a row has two.
template <int kCount>
__device__ __forceinline__ void add_up(const float (&probabilities)[kCount], int begin, float (&sum)[4]) {
#pragma unroll
  for (int v = begin; v < begin + kPart; ++v) sum[v / 2 % 4] += probabilities[v];
}

}  // namespace tessera::fmha
