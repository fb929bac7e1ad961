// A warpgroup's scores that are capped or lowered: attention/altered_scores.cuh.
#pragma once

#include "attention/altered_scores.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// `slopes`: of this thread's two rows. `row`: the first; the second is 8 further. `first_key`: of the block.
// Of a thread's two rows from its first column.
template <Config C>
__device__ __forceinline__ void find_distances(const Lengths& lengths, int row, int first_key, float (&distances)[2]) {
  const int own_column = first_key + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    distances[r] = static_cast<float>((row + 8 * r) / C.pack_gqa + lengths.k - lengths.q - own_column);
}

template <Config C>
__device__ __forceinline__ void alter_scores(Scores<C>& scores, const attention::Altering& altering,
                                             const float (&slopes)[2], const Lengths& lengths, int row, int first_key) {
  float distances[2];
  find_distances<C>(lengths, row, first_key, distances);
#pragma unroll
  for (int v = 0; v < C.tile_n / 2; ++v) {
    const float distance = distances[v / 2 % 2] - static_cast<float>(8 * (v / 4) + v % 2);
    scores[v] = attention::altered<C>(scores[v], altering, slopes[v / 2 % 2], distance);
  }
}

}  // namespace tessera::fmha
