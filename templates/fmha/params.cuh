// The entry's parameters as one value. The maps stay references: TMA reads a map at its address in parameter space.
#pragma once

#include "ptx/tma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

struct Params {
  const ptx::TensorMap& q;
  const ptx::TensorMap& k;
  const ptx::TensorMap& v;
  const ptx::TensorMap& o;
  // Of k and v, whose boxes have two, three and four times as many keys: where blocks are made of parts of pages.
  const ptx::TensorMap* k_parts[kMostPageParts - 1] = {};
  const ptx::TensorMap* v_parts[kMostPageParts - 1] = {};
  float* lse;                         // may be null
  float* row_max = nullptr;           // un-normalised output only
  float* row_sum = nullptr;           // likewise
  const int* seqused_q = nullptr;     // valid lengths [batch]: where the Config has them
  const int* seqused_k = nullptr;     // likewise
  const int* cu_seqlens_q = nullptr;  // [batch + 1], where sequences' queries begin: ragged only
  void* o_rows = nullptr;             // o, where rows leave from registers: dealt keys, ragged sequences, ..
  const void* q_rows = nullptr;       // q, where threads copy it
  float* partial_o = nullptr;         // [split][row][head_dim_v], un-normalised: where keys are split
  float* partial_sums = nullptr;      // [split][row][2]: the reference times log2(e), the sum
  // Two pools: keys and values of the window; rows of k and v [batch, seqlen_q, topk]; keys of the window [batch].
  const void* swa_k = nullptr;
  const void* swa_v = nullptr;
  const int* indices = nullptr;
  const int* topk_lens = nullptr;  // places of each list [batch, seqlen_q], may be null: topk
  const int* swa_lens = nullptr;
  const float* sink = nullptr;          // a logit of each head [heads_q], may be null: where the Config has them
  const float* alibi_slopes = nullptr;  // [heads_q]: where the Config has them
  const unsigned* tree_mask = nullptr;  // rows of tree_words words, one for each query: likewise
  int tree_words = 0;
  int topk = 0;
  int seqlen_swa = 0;
  int batch;
  int heads_q;
  int heads_kv;
  int seqlen_q;
  int seqlen_k;
  int num_splits = 1;
  int window_size_left = -1;   // keys before a query that it sees; below 0: all; a window only
  int window_size_right = -1;  // likewise behind it
  int attention_chunk = 1;     // keys of a chunk; a window of chunks only
  float softmax_scale;
  float softcap = 0;  // where the Config has one
  // Keys that do not lie dense.
  const void* k_keys = nullptr;
  const void* v_keys = nullptr;
  const int* block_table = nullptr;  // [batch][max_pages]
  int pages = 0;                     // of the pool
  int max_pages = 0;
  const int* cu_seqlens_k = nullptr;  // [batch + 1]: where sequences begin and end
  int tokens_k = 0;
  long long k_stride_page = 0;  // in elements
  long long k_stride_seqlen = 0;
  long long k_stride_head = 0;
  long long v_stride_page = 0;
  long long v_stride_seqlen = 0;
  long long v_stride_head = 0;
  long long swa_k_stride_seqlen = 0;
  long long swa_k_stride_batch = 0;
  long long swa_v_stride_seqlen = 0;
  long long swa_v_stride_batch = 0;
  // 8-bit keys, and q: [batch][heads_kv], null: 1.
  const float* q_descale = nullptr;
  const float* k_descale = nullptr;
  const float* v_descale = nullptr;
  long long q_descale_stride_batch = 0;
  long long q_descale_stride_head = 0;
  long long k_descale_stride_batch = 0;
  long long k_descale_stride_head = 0;
  long long v_descale_stride_batch = 0;
  long long v_descale_stride_head = 0;
  // Keys with scales: [pages][heads_kv][page_size][scales of a key].
  const void* k_scale = nullptr;
  const void* v_scale = nullptr;
  long long k_scale_stride_page = 0;  // in bytes
  long long k_scale_stride_head = 0;
  long long v_scale_stride_page = 0;
  long long v_scale_stride_head = 0;
  long long o_stride_head = 0;  // of o_rows
  long long o_stride_seqlen = 0;
  long long o_stride_batch = 0;
  long long q_stride_head = 0;  // of q_rows
  long long q_stride_seqlen = 0;
  long long q_stride_batch = 0;
  int max_parts = 0;    // of a tile: dealt parts with a size of their own
  int* cuts = nullptr;  // [CTAs][kCutWords], where ranges of dealt keys begin: where the Config has whole tiles
  int num_ctas = 0;     // whose parts are merged: dealt keys
};

__device__ __forceinline__ long long num_rows(const Params& p) {
  return static_cast<long long>(p.batch) * p.heads_q * p.seqlen_q;
}

}  // namespace tessera::fmha
