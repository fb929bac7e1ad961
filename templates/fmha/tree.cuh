// Keys that a tree hides from a warpgroup's rows: attention/tree_mask.cuh.
#pragma once

#include "attention/tree_mask.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/registers.cuh"
#include "ptx/math.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Of a sequence that is there; else -1.
template <Config C>
__device__ __forceinline__ long long first_token(const Params& p, const HeadIndex& at) {
  if (at.batch >= p.batch) return -1;
  if constexpr (is_ragged(C.facts)) return first_query<C>(p, at.batch);
  return static_cast<long long>(at.batch) * p.seqlen_q;
}

// `row`: the thread's first; the second is 8 further. `first_key`: of the block.
template <Config C>
__device__ __forceinline__ void hide_by_tree(Scores<C>& scores, const Params& p, const Lengths& lengths,
                                             long long token, int row, int first_key) {
  if (first_key + C.tile_n <= lengths.k - lengths.q) return;
  const int own_column = first_key + 2 * (static_cast<int>(threadIdx.x) % 4);
  const attention::TreeRow rows[2] = {attention::tree_row(p, lengths, token, row / C.pack_gqa),
                                      attention::tree_row(p, lengths, token, (row + 8) / C.pack_gqa)};
#pragma unroll
  for (int group = 0; group < C.tile_n / 2; group += 16) {
    const unsigned bits[2] = {rows[0].visible(own_column + 2 * group), rows[1].visible(own_column + 2 * group)};
#pragma unroll
    for (int v = group; v < C.tile_n / 2 && v < group + 16; ++v) {
      const int key = 8 * ((v - group) / 4) + v % 2;
      if ((bits[v / 2 % 2] >> key & 1) == 0) scores[v] = ptx::minus_infinity();
    }
  }
}

// The same by wgmma.
template <Config C>
__device__ __forceinline__ void hide_by_tree(const Params& p, const Lengths& lengths, long long token, int row,
                                             int first_key) {
  if (first_key + C.tile_n <= lengths.k - lengths.q) return;
  constexpr int kWords = (C.tile_n + 31) / 32;
  const int own_column = first_key + 2 * (static_cast<int>(threadIdx.x) % 4);
  const attention::TreeRow rows[2] = {attention::tree_row(p, lengths, token, row / C.pack_gqa),
                                      attention::tree_row(p, lengths, token, (row + 8) / C.pack_gqa)};
  unsigned bits[2][kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) bits[r][i] = rows[r].visible(own_column + 32 * i);
  }
  RegistersOf<C>::hide_by_bits(1.0f, bits[0], bits[1]);
}

}  // namespace tessera::fmha
