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

// Places of a query's list: none in a pool of no rows. What stands in the list behind them may be anything. `list`: the
// query's number among all.
template <class Params>
__device__ __forceinline__ int list_length(const Params& p, long long list) {
  if (p.seqlen_k == 0) return 0;
  if (p.topk_lens == nullptr) return p.topk;
  return min(max(static_cast<int>(ptx::ld_global_u32(p.topk_lens + list)), 0), p.topk);
}
template <class Params>
__device__ __forceinline__ int list_length(const Params& p, int batch, int query) {
  return list_length(p, static_cast<long long>(batch) * p.seqlen_q + query);
}

// Row of the pool at place `i` of a query's list of so many, else `none`: behind them, and where it says no row of the
// pool.
template <class Params>
__device__ __forceinline__ int listed_row(const Params& p, int batch, int query, int i, int length, int none) {
  if (i >= length) return none;
  const long long list = (static_cast<long long>(batch) * p.seqlen_q + query) * p.topk;
  const unsigned row = ptx::ld_global_u32(p.indices + list + i);
  return row < static_cast<unsigned>(p.seqlen_k) ? static_cast<int>(row) : none;
}

}  // namespace tessera::attention
