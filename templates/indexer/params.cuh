// What the entry hands on: see spec/indexer.h.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::indexer {

struct Params {
  const ptx::TensorMap& q;
  const ptx::TensorMap& weights;
  const ptx::TensorMap& keys;
  const ptx::TensorMap& scales;
  const ptx::TensorMap& q_scales;  // of mxfp4 alone: else q again, which nobody reads through it
  const int* first;                // ks; paged: block_table
  const int* last;                 // ke; paged: context_lens
  void* scores;
  long long scores_stride_m;
  long long table_stride;  // of block_table
  int m;
  int n;  // keys; paged: pages
  int columns;
  int max_pages;
};

}  // namespace tessera::indexer
