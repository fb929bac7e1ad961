// Two pools of keys: those that a query lists, and those of its sequence's window. Which ones a query sees, whatever
// the numbers in memory are. One meaning for all families.
#pragma once

#include "ptx/global.cuh"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::attention {

// Keys of the window that a query sees: its first ones. The window's last key stands beside the last query.
template <auto C, class Params>
__device__ __forceinline__ int window_end(const Params& p, int batch, int query) {
  const int keys = min(max(static_cast<int>(ptx::ld_global_u32(p.swa_lens + batch)), 0), p.seqlen_swa);
  return C.facts.mask == Mask::causal ? min(max(keys - p.seqlen_q + query + 1, 0), keys) : keys;
}

// Row of the pool at place `i` of a query's list, else `none`: behind the list, and where it says no row of the pool.
template <class Params>
__device__ __forceinline__ int listed_row(const Params& p, int batch, int query, int i, int none) {
  if (i >= p.topk) return none;
  const long long list = (static_cast<long long>(batch) * p.seqlen_q + query) * p.topk;
  const unsigned row = ptx::ld_global_u32(p.indices + list + i);
  return row < static_cast<unsigned>(p.seqlen_k) ? static_cast<int>(row) : none;
}

}  // namespace tessera::attention
