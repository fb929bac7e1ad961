// What a launch is given, which tile a CTA has next, and which keys its rows see.
#pragma once

#include "spec/fmha_nvfp4.h"

namespace tessera::fmha_nvfp4 {

struct Params {
  const void *q, *k, *v;
  const float *delta_s, *row_shift;
  void* o;
  float* lse;  // may be null
  int batch, heads_q, heads_kv, seqlen_q, seqlen_k;
  int window_size_left, window_size_right;  // -1: no bound
  long long o_stride_head, o_stride_seqlen, o_stride_batch;
  float softmax_scale;
};

struct Keys {
  int begin, end;
};

// Of a query: a key is seen from `begin` to before `end`, which do not fall from a query to the next.
template <Config C>
__device__ __forceinline__ Keys visible_keys(const Params& p, int query) {
  const int beside = query + p.seqlen_k - p.seqlen_q;
  Keys keys{0, p.seqlen_k};
  if constexpr (C.mask == Mask::causal) keys.end = min(keys.end, beside + 1);
  if constexpr (C.window == Window::sliding) {
    // Sizes may be as large as lengths: no sum of them leaves 31 bits.
    if (p.window_size_right >= 0) keys.end = min(keys.end, beside + min(p.window_size_right, p.seqlen_k - beside) + 1);
    if (p.window_size_left >= 0 && beside > p.window_size_left) keys.begin = beside - p.window_size_left;
  }
  return keys;
}

// tile_m queries of a head, and the blocks of tile_n keys that some of them see.
template <Config C>
struct Tile {
  int batch, head, first_row;
  int first_block, end_block;

  __device__ __forceinline__ Tile(const Params& p, int index) {
    const int tiles = (p.seqlen_q - 1) / C.tile_m + 1, of_heads = p.heads_q * p.batch;
    // Heads that read the same keys are neighbours. Causal: the last tiles, which have most keys, first.
    const int tile = index / of_heads, of_tile = index - tile * of_heads;
    batch = of_tile / p.heads_q;
    head = of_tile - batch * p.heads_q;
    first_row = (C.mask == Mask::causal ? tiles - 1 - tile : tile) * C.tile_m;
    const int last_row = min(first_row + C.tile_m, p.seqlen_q) - 1;
    const int end = visible_keys<C>(p, last_row).end;
    first_block = visible_keys<C>(p, first_row).begin / C.tile_n;
    end_block = end > 0 ? max((end - 1) / C.tile_n + 1, first_block) : first_block;
  }
};

template <Config C>
__device__ __forceinline__ int num_tiles(const Params& p) {
  return p.seqlen_q > 0 ? ((p.seqlen_q - 1) / C.tile_m + 1) * p.heads_q * p.batch : 0;
}

__device__ __forceinline__ int blocks_of(int rows) { return (rows + nvfp4::kBlockRows - 1) / nvfp4::kBlockRows; }

}  // namespace tessera::fmha_nvfp4
