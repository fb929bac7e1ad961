// Which keys of its sequence a query sees: the causal mask, a sliding window, valid lengths that are read from memory.
// One meaning for all families.
#pragma once

#include "ptx/global.cuh"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::attention {

// Valid queries and keys of a sequence.
struct Lengths {
  int k;
  int q;
};

// Where the keys of a sequence lie among those of all: [begin, end) of ragged ones, whatever is in memory.
struct Place {
  int begin;
  int end;
};
template <class Params>
__device__ __forceinline__ Place place_of_keys(const Params& p, int batch) {
  const auto bound = [&](int i) { return static_cast<int>(ptx::ld_global_u32(p.cu_seqlens_k + i)); };
  const int begin = min(max(bound(batch), 0), p.tokens_k);
  return {begin, min(max(bound(batch + 1), begin), p.tokens_k)};
}

template <auto C>
TESSERA_HD constexpr bool has_ragged_keys() {
  if constexpr (requires { C.facts.kv_layout; }) return C.facts.kv_layout == KvLayout::ragged;
  return false;
}

template <auto C, class Params>
__device__ __forceinline__ Lengths lengths_of(const Params& p, int batch) {
  Lengths lengths{p.seqlen_k, p.seqlen_q};
  const auto used = [&](const int* lengths_of_batch, int length) {
    return min(max(static_cast<int>(ptx::ld_global_u32(lengths_of_batch + batch)), 0), length);
  };
  if constexpr (has_ragged_keys<C>()) {
    const Place place = place_of_keys(p, batch);
    lengths.k = min(place.end - place.begin, p.seqlen_k);
  }
  if constexpr (C.facts.seqused == UsedLengths::qk) lengths.q = used(p.seqused_q, p.seqlen_q);
  if constexpr (C.facts.seqused != UsedLengths::none) lengths.k = used(p.seqused_k, lengths.k);
  return lengths;
}

// Keys [begin, end); none where end <= begin.
struct Keys {
  int begin;
  int end;
};

// Of queries in their order, both ends grow.
template <auto C, class Params>
__device__ __forceinline__ Keys visible_keys(const Params& p, const Lengths& lengths, int query) {
  if (C.facts.seqused == UsedLengths::qk && query >= lengths.q) return {0, 0};
  const int beside = query + lengths.k - lengths.q;
  Keys keys{0, lengths.k};
  if constexpr (C.facts.mask == Mask::causal) keys.end = min(lengths.k, query + 1 + lengths.k - lengths.q);
  if constexpr (C.facts.window == Window::sliding) {
    // Sizes may be as large as an int: no sum may exceed one.
    if (p.window_size_left >= 0 && p.window_size_left < beside) keys.begin = beside - p.window_size_left;
    if (p.window_size_right >= 0 && p.window_size_right < keys.end - beside)
      keys.end = min(keys.end, beside + 1 + p.window_size_right);
  }
  if constexpr (C.facts.window == Window::chunked) {
    // Positions count from the first key: one in front of it has no chunk, and sees nothing.
    const unsigned chunk = static_cast<unsigned>(p.attention_chunk);
    if (beside >= 0) keys.begin = static_cast<int>(static_cast<unsigned>(beside) / chunk * chunk);
  }
  return keys;
}

// Blocks of keys [begin, end), at least one. `is_hidden`: there was none, so that this one is hidden from all rows.
struct Blocks {
  int begin;
  int end;
  bool is_hidden = false;
  __device__ __forceinline__ bool has(int block) const { return begin <= block && block < end; }
};

// Part `split` of num_splits of a tile's blocks: equal numbers for all parts but the last ones. A part that is left
// without any works on the block behind the last.
__device__ __forceinline__ Blocks part_of(const Blocks& all, int split, int num_splits) {
  if (all.is_hidden) return all;
  const unsigned count = static_cast<unsigned>(all.end - all.begin + num_splits - 1);
  const int blocks = static_cast<int>(count / static_cast<unsigned>(num_splits));
  const int begin = all.begin + min(split, all.end) * blocks;
  if (begin >= all.end) return {all.end, all.end + 1, true};
  return {begin, min(begin + blocks, all.end)};
}

// The same where each part has so many blocks, but for the last that has any.
template <int kBlocks>
__device__ __forceinline__ Blocks sized_part_of(const Blocks& all, int split) {
  if (all.is_hidden) return all;
  if (split >= (all.end - all.begin + kBlocks - 1) / kBlocks) return {all.end, all.end + 1, true};
  const int begin = all.begin + split * kBlocks;
  return {begin, min(begin + kBlocks, all.end)};
}

}  // namespace tessera::attention
