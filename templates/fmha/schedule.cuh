// Which tiles a CTA takes, and which key blocks a tile needs.
//
// The grid is persistent: CTA c takes tiles c, c + grid, c + 2 grid, ... of one order, the same in every role, so roles
// need not talk about it. Tiles of one head follow each other and share K and V in the L2.
//
// With the causal mask, a tile's work grows with its place in the sequence. Tiles then come in sections of as many
// heads as have their K and V in the L2 together; inside a section the longest tiles of all heads come first, and every
// second round of the grid runs backwards, so that long and short add up.
#pragma once

#include "fmha/params.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

struct TileIndex {
  int m;     // tile along the queries
  int head;  // of Q
  int batch;
};

inline constexpr int kSectionBytes = 16 << 20;  // of K and V that a section of heads shares

template <Config C>
struct Schedule {
  int m_tiles;
  int heads;  // of all batches
  int tiles;
  int heads_of_section;

  __device__ __forceinline__ explicit Schedule(const Params& p)
      : m_tiles((p.seqlen_q + C.tile_m - 1) / C.tile_m), heads(p.batch * p.heads_q), tiles(m_tiles * heads) {
    const int group = p.heads_q / p.heads_kv;
    constexpr int kSectionKeys = kSectionBytes / (2 * C.head_dim * dtype_bytes(C.dtype));
    heads_of_section = min(max(kSectionKeys / max(p.seqlen_k, 1), 1), p.heads_kv * p.batch) * group;
  }

  // The tile of this CTA in `round`, in the order of work; `tiles` or more: none.
  __device__ __forceinline__ int linear(int round) const {
    const int grid = static_cast<int>(gridDim.x);
    const int cta = static_cast<int>(blockIdx.x);
    const bool is_backwards = C.mask == Mask::causal && round % 2 == 1;
    return round * grid + (is_backwards ? grid - 1 - cta : cta);
  }

  __device__ __forceinline__ TileIndex at(int linear_index, const Params& p) const {
    int m, head;
    if constexpr (C.mask == Mask::causal) {
      const int section = linear_index / (heads_of_section * m_tiles);
      const int first_head = section * heads_of_section;
      const int width = min(heads_of_section, heads - first_head);
      const int rest = linear_index - first_head * m_tiles;
      m = m_tiles - 1 - rest / width;
      head = first_head + rest % width;
    } else {
      m = linear_index % m_tiles;
      head = linear_index / m_tiles;
    }
    return {m, head % p.heads_q, head / p.heads_q};
  }

  // Calls work(tile) for each tile of this CTA.
  template <class Work>
  __device__ __forceinline__ void for_each(const Params& p, Work&& work) const {
    for (int round = 0; round * static_cast<int>(gridDim.x) < tiles; ++round) {
      const int index = linear(round);
      if (index < tiles) work(at(index, p));
    }
  }
};

// Keys that query `row` of the tile's last rows may see: blocks [0, key_blocks) hold them all.
template <Config C>
__device__ __forceinline__ int key_blocks(const Params& p, int m_tile) {
  int keys = p.seqlen_k;
  if constexpr (C.mask == Mask::causal) {
    const int rows = min((m_tile + 1) * C.tile_m, p.seqlen_q);
    keys = min(keys, rows + p.seqlen_k - p.seqlen_q);
  }
  return keys <= 0 ? 0 : (keys + C.tile_n - 1) / C.tile_n;
}

}  // namespace tessera::fmha
