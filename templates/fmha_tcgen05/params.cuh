// The entry's parameters as one value. The maps stay references: TMA reads a map at its address in parameter space.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::fmha_tcgen05 {

struct Params {
  const ptx::TensorMap& q;
  const ptx::TensorMap& k;
  const ptx::TensorMap& v;
  const ptx::TensorMap& o;
  float* lse;                         // may be null
  float* row_max = nullptr;           // un-normalised output only
  float* row_sum = nullptr;           // likewise
  const int* seqused_q = nullptr;     // valid lengths [batch]: where the Config has them
  const int* seqused_k = nullptr;     // likewise
  const int* cu_seqlens_q = nullptr;  // [batch + 1], where sequences' queries begin: ragged only
  void* o_rows = nullptr;             // o, whose rows leave one by one where a tile has some of the next sequence
  float* partial_o = nullptr;         // [split][row][head_dim_v], un-normalised: where keys are split
  float* partial_sums = nullptr;      // [split][row][2]: the reference times log2(e), the sum
  // Pools: the window's tensors; rows of k and v [batch, seqlen_q, topk], below 0: none; keys of the window [batch].
  const ptx::TensorMap* swa_k = nullptr;
  const ptx::TensorMap* swa_v = nullptr;
  // In place of a map, where threads gather: as in fmha_latent/params.cuh.
  const void* swa_k_keys = nullptr;
  const int* swa_indices = nullptr;
  int swa_rows = 0;
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
  // Keys that do not lie dense: see fmha/params.cuh.
  const void* k_keys = nullptr;
  const void* v_keys = nullptr;
  const int* block_table = nullptr;
  int pages = 0;
  int max_pages = 0;
  const int* cu_seqlens_k = nullptr;
  int tokens_k = 0;
  long long k_stride_page = 0;
  long long k_stride_seqlen = 0;
  long long k_stride_head = 0;
  long long v_stride_page = 0;
  long long v_stride_seqlen = 0;
  long long v_stride_head = 0;
  long long swa_k_stride_page = 0;
  long long swa_k_stride_seqlen = 0;
  long long swa_k_stride_batch = 0;
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
};

}  // namespace tessera::fmha_tcgen05
