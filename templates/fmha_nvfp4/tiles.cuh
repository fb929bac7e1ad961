// What a launch is given, which tile a CTA has next, and which keys its rows see.
#pragma once

#include "attention/nvfp4_sequences.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha_nvfp4.h"

namespace tessera::fmha_nvfp4 {

struct Params {
  const void *q, *k, *v;
  const float *delta_s, *row_shift;
  const ptx::TensorMap* o = nullptr;                             // null for split keys
  void* o_rows = nullptr;                                        // the same tensor; ragged queries
  float *lse = nullptr, *row_max = nullptr, *row_sum = nullptr;  // the first may be null
  float *partial_o = nullptr, *partial_sums = nullptr;           // split keys
  const int *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr, *seqused_q = nullptr, *seqused_k = nullptr;
  const float *sink = nullptr, *alibi_slopes = nullptr;  // [heads_q]; the first may be null
  const unsigned* tree_mask = nullptr;
  int tree_words = 0;
  int batch, heads_q, heads_kv, seqlen_q, seqlen_k;
  int num_splits = 1;
  int tokens_k = 0;
  int attention_chunk = 1;
  int window_size_left = -1, window_size_right = -1;  // -1: no bound
  long long o_stride_head = 0, o_stride_seqlen = 0;   // ragged queries
  float softmax_scale;
  float softcap = 0.0f;
};

template <Config C>
TESSERA_HD constexpr bool has_ragged_queries() {
  return C.facts.q_layout == QueryLayout::ragged;
}
template <Config C>
TESSERA_HD constexpr bool has_ragged_keys() {
  return C.facts.kv_layout == KvLayout::ragged;
}

// Dense queries with used lengths: rows behind them see no key, and are stored.
template <Config C>
TESSERA_HD constexpr bool has_used_queries() {
  return C.facts.seqused == UsedLengths::qk;
}

struct Keys {
  int begin, end;
};

// tile_m queries of a head of a sequence, and the blocks of tile_n keys that some of them see; of split keys a part.
template <Config C>
struct Tile {
  int sequence, head, first_row;          // the row among the sequence's
  int split = 0;                          // number of the part
  int rows;                               // of the sequence that are stored
  attention::SequenceRows queries, keys;  // of the sequence, in blocks of 128
  int first_block = 0, end_block = 0;     // of tile_n keys

  __device__ __forceinline__ Tile(const Params& p, int index) {
    constexpr bool kIsRagged = has_ragged_queries<C>();
    if constexpr (is_split(C)) {
      const int whole = index / p.num_splits;
      split = index - whole * p.num_splits;
      index = whole;
    }
    // Heads that read the same keys are neighbours, tiles far from each other. Causal: those with most keys first.
    const int number = index / p.heads_q;
    head = index - number * p.heads_q;
    int tile = number;
    if constexpr (kIsRagged) {
      if constexpr (C.facts.mask == Mask::causal)
        tile = attention::blocks_of_all<true, C.tile_m>(p.batch, p.seqlen_q, p.seqlen_q) - 1 - number;
      sequence = attention::sequence_of<true, C.tile_m>(p.cu_seqlens_q, tile, p.batch, p.seqlen_q, p.seqlen_q);
    } else {
      const int tiles = attention::blocks_of_rows<C.tile_m>(p.seqlen_q), of_sequence = number / p.batch;
      sequence = number - of_sequence * p.batch;
      tile = sequence * tiles + (C.facts.mask == Mask::causal ? tiles - 1 - of_sequence : of_sequence);
    }
    const int first_tile =
        attention::rows_of<kIsRagged, C.tile_m>(p.cu_seqlens_q, nullptr, sequence, p.seqlen_q, p.seqlen_q).first_block;
    queries =
        attention::rows_of<kIsRagged, nvfp4::kBlockRows>(p.cu_seqlens_q, p.seqused_q, sequence, p.seqlen_q, p.seqlen_q);
    rows = has_used_queries<C>() ? p.seqlen_q : queries.rows;
    keys = attention::rows_of<has_ragged_keys<C>(), nvfp4::kBlockRows>(p.cu_seqlens_k, p.seqused_k, sequence,
                                                                       p.seqlen_k, p.tokens_k);
    first_row = (tile - first_tile) * C.tile_m;
    if (first_row >= queries.rows) return;  // no keys
    const int last_row = min(first_row + C.tile_m, queries.rows) - 1;
    const int end = visible_keys(p, last_row).end;
    first_block = visible_keys(p, first_row).begin / C.tile_n;
    end_block = end > 0 ? max((end - 1) / C.tile_n + 1, first_block) : first_block;
    if constexpr (is_split(C)) take_part(p);
  }

  // Equal numbers of blocks for all parts but the last ones, or as many as a part's size has. A part may have none.
  __device__ __forceinline__ void take_part(const Params& p) {
    const int all = end_block - first_block;
    int blocks = C.facts.split_size / C.tile_n;
    if constexpr (C.facts.split_size == 0)
      blocks = static_cast<int>(static_cast<unsigned>(all + p.num_splits - 1) / static_cast<unsigned>(p.num_splits));
    first_block += static_cast<int>(min(static_cast<long long>(split) * blocks, static_cast<long long>(all)));
    end_block = min(end_block, first_block + blocks);
  }

  // Ragged: numbers of tiles that no sequence has.
  __device__ __forceinline__ bool is_empty() const { return first_row >= rows; }

  // Of a query: a key is seen from `begin` to before `end`, which do not fall from a query to the next.
  __device__ __forceinline__ Keys visible_keys(const Params& p, int query) const {
    if (has_used_queries<C>() && query >= queries.rows) return {0, 0};
    const int beside = query + keys.rows - queries.rows;
    Keys seen{0, keys.rows};
    if constexpr (C.facts.mask == Mask::causal) seen.end = min(seen.end, beside + 1);
    if constexpr (C.facts.window == Window::sliding) {
      // Sizes may be as large as lengths: no sum of them leaves 31 bits.
      if (p.window_size_right >= 0) seen.end = min(seen.end, beside + min(p.window_size_right, keys.rows - beside) + 1);
      if (p.window_size_left >= 0 && beside > p.window_size_left) seen.begin = beside - p.window_size_left;
    }
    if constexpr (C.facts.window == Window::chunked) {
      // A query in front of the first key has no chunk, and sees nothing.
      const unsigned chunk = static_cast<unsigned>(p.attention_chunk);
      if (beside >= 0) seen.begin = static_cast<int>(static_cast<unsigned>(beside) / chunk * chunk);
    }
    return seen;
  }

  // Among the blocks of 128 queries of all heads and sequences.
  __device__ __forceinline__ long long query_block(const Params& p) const {
    const int of_head =
        attention::blocks_of_all<has_ragged_queries<C>(), nvfp4::kBlockRows>(p.batch, p.seqlen_q, p.seqlen_q);
    return static_cast<long long>(head) * of_head + queries.first_block;
  }
  // The first one of the sequence's keys.
  __device__ __forceinline__ long long key_block(const Params& p) const {
    const int of_head =
        attention::blocks_of_all<has_ragged_keys<C>(), nvfp4::kBlockRows>(p.batch, p.seqlen_k, p.tokens_k);
    return static_cast<long long>(head / (p.heads_q / p.heads_kv)) * of_head + keys.first_block;
  }
};

template <Config C>
__device__ __forceinline__ int num_tiles(const Params& p) {
  const int tiles =
      attention::blocks_of_all<has_ragged_queries<C>(), C.tile_m>(p.batch, p.seqlen_q, p.seqlen_q) * p.heads_q;
  return is_split(C) ? tiles * p.num_splits : tiles;
}

}  // namespace tessera::fmha_nvfp4
