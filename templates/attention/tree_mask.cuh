// Trees of drafted tokens: the last keys of a sequence are those of its queries, and a row of words has a bit for each
// that a query sees. Keys before them are seen by all queries.
#pragma once

#include "attention/visible_keys.cuh"
#include "ptx/global.cuh"
#include "spec/attention_facts.h"

namespace tessera::attention {

// One query's row.
struct TreeRow {
  const unsigned* words = nullptr;  // null where rows have no words
  int count = -1;                   // below 0: all keys are seen
  int first_key = 0;                // that of the sequence's first query

  __device__ __forceinline__ unsigned word(int i) const {
    if (i < 0) return 0xffffffff;
    return i < count ? ptx::ld_global_u32(words + i) : 0;
  }
  // Bits of the keys [key, key + 32).
  __device__ __forceinline__ unsigned visible(int key) const {
    const int bit = key - first_key;
    if (count < 0 || bit <= -32) return 0xffffffff;
    const int first = bit >> 5;
    const unsigned long long both = static_cast<unsigned long long>(word(first + 1)) << 32 | word(first);
    return static_cast<unsigned>(both >> (bit & 31));
  }
};

// `first_token`: of the query's sequence, below 0: none.
template <class Params>
__device__ __forceinline__ TreeRow tree_row(const Params& p, const Lengths& lengths, long long first_token, int query) {
  if (first_token < 0 || query >= lengths.q) return {};
  return {p.tree_mask + (first_token + query) * p.tree_words, p.tree_words, lengths.k - lengths.q};
}

}  // namespace tessera::attention
