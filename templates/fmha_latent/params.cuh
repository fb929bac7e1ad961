// The entry's parameters as one value. The maps stay references: TMA reads a map at its address in parameter space.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::fmha_latent {

struct Params {
  const ptx::TensorMap& q;
  const ptx::TensorMap& k;
  float* lse;                      // may be null
  const int* seqused_k = nullptr;  // valid keys [batch]: where the Config has them
  void* o_rows = nullptr;
  float* partial_o = nullptr;     // [slot][row][head_dim_v], un-normalised: dealt keys
  float* partial_sums = nullptr;  // [slot][row][2]: the reference times log2(e), the sum
  int* tails = nullptr;           // [CTA][kTailWords]: tails.cuh
  int batch;
  int heads_q;
  int heads_kv;
  int seqlen_q;
  int seqlen_k;
  float softmax_scale;
  const int* block_table = nullptr;  // [batch][max_pages]: keys in pages
  int pages = 0;                     // of the pool
  int max_pages = 0;
  // Two pools: rows that queries list, those lists [batch][seqlen_q][topk], places of each list (may be null: topk); a
  // window [batch][swa_rows], its valid keys [batch], lists of its rows [batch][seqlen_q][seqlen_swa] (may be null: its
  // first ones); a logit of each head (may be null). Strides of rows, and of a window, in elements.
  const void* k_keys = nullptr;
  const void* swa_k = nullptr;
  const int* indices = nullptr;
  const int* topk_lens = nullptr;
  const int* swa_lens = nullptr;
  const int* swa_indices = nullptr;
  const float* sink = nullptr;
  int topk = 0;
  int seqlen_swa = 0;
  int swa_rows = 0;
  long long k_stride_seqlen = 0;
  long long swa_k_stride_seqlen = 0;
  long long k_stride_page = 0;  // of a cache in place of rows, in bytes, as those of its window
  long long swa_k_stride_page = 0;
  long long swa_k_stride_batch = 0;
  const float* k_descale = nullptr;  // [batch], may be null: 8-bit keys
  long long k_descale_stride_batch = 0;
  long long o_stride_head = 0;  // of o_rows, in elements
  long long o_stride_seqlen = 0;
  long long o_stride_batch = 0;
  int num_ctas = 0;  // ranges whose parts are merged
};

}  // namespace tessera::fmha_latent
