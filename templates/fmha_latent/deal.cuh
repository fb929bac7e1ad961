// Which keys a CTA takes.
//
// The tiles of a sequence see the same keys: CTAs that follow each other have one of them each and walk side by side.
// Such a row of CTAs has a range of what all sequences have together: whole sequences, or, where keys are dealt, pairs
// of key blocks, as many as every other range but for one. A sequence that dealing cuts is a part in each range that it
// reaches into. A CTA has at most two parts, one that begins its range and one that ends it, hence two slots in the
// workspace: 2 * CTA and 2 * CTA + 1. merge.cuh finds them by the same arithmetic.
#pragma once

#include "attention/pools.cuh"
#include "fmha_latent/params.cuh"
#include "ptx/global.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// Of numbers that are not negative.
__device__ __forceinline__ int quotient(int x, int y) {
  return static_cast<int>(static_cast<unsigned>(x) / static_cast<unsigned>(y));
}

// Of two that share keys.
__device__ __forceinline__ int cta_of_pair() { return static_cast<int>(blockIdx.x) % 2; }
__device__ __forceinline__ int other_cta() { return cta_of_pair() ^ 1; }

// With pools each query has keys of its own, and is what a sequence is to all else here.
template <Config C>
__device__ __forceinline__ int sequences_of(const Params& p) {
  return gathers(C) ? p.batch * p.seqlen_q : p.batch;
}
// Where a row of a sequence lies.
struct RowPlace {
  int batch;
  int query;
  int head;
};
template <Config C>
__device__ __forceinline__ RowPlace place_of(const Params& p, int sequence, int row) {
  if constexpr (gathers(C)) {
    const int batch = quotient(sequence, p.seqlen_q);
    return {batch, sequence - batch * p.seqlen_q, row};
  }
  const int query = row / C.pack_gqa;
  return {sequence, query, row - query * C.pack_gqa};
}

// Rows of a sequence, and CTAs that share them.
template <Config C>
__device__ __forceinline__ int rows_of_sequence(const Params& p) {
  return gathers(C) ? C.pack_gqa : p.seqlen_q * C.pack_gqa;
}
template <Config C>
__device__ __forceinline__ int tiles_of_sequence(const Params& p) {
  return (rows_of_sequence<C>(p) + C.tile_m - 1) / C.tile_m;
}
// Of a part in the workspace: no more than there are.
template <Config C>
__device__ __forceinline__ int rows_of_slot(const Params& p) {
  return min(C.tile_m, rows_of_sequence<C>(p));
}

// Valid keys of a sequence.
template <Config C>
__device__ __forceinline__ int keys_of(const Params& p, int sequence) {
  if constexpr (gathers(C)) {
    const RowPlace place = place_of<C>(p, sequence, 0);
    return attention::list_length(p, sequence) + attention::window_end<C>(p, place.batch, place.query);
  }
  if constexpr (C.facts.seqused == UsedLengths::none) return p.seqlen_k;
  return min(max(static_cast<int>(ptx::ld_global_u32(p.seqused_k + sequence)), 0), p.seqlen_k);
}
// Pairs of key blocks, one at least: a sequence without keys has rows too.
template <Config C>
__device__ __forceinline__ int pairs_of(const Params& p, int sequence) {
  return max((keys_of<C>(p, sequence) + kPairKeys - 1) / kPairKeys, 1);
}

// A sequence's pairs [begin, end) that one CTA has. slot: where its part goes; -1: it is all of them.
struct Part {
  int sequence = 0;
  int begin = 0;
  int end = 0;
  int slot = -1;
};

// A pair's place.
struct PairPlace {
  int sequence = 0;
  int pair = 0;  // of the sequence's
};

// The pairs of all sequences in one row, as a warp sees it; all its lanes call together. Each lane knows some sequences
// that follow each other.
template <Config C>
struct PairRow {
  const Params& p;
  const int sequences_of_lane;
  int of_lane = 0;  // pairs of this lane's sequences
  int end = 0;      // and of those before
  int total = 0;

  __device__ __forceinline__ explicit PairRow(const Params& params)
      : p(params), sequences_of_lane((sequences_of<C>(params) + 31) / 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int i = 0; i < sequences_of_lane; i += kAtOnce) {
      int pairs[kAtOnce];
      look_up(lane * sequences_of_lane + i, pairs);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (i + j < sequences_of_lane && lane * sequences_of_lane + i + j < sequences_of<C>(p)) of_lane += pairs[j];
    }
    end = of_lane;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int before = __shfl_up_sync(0xffffffff, end, i);
      if (lane >= i) end += before;
    }
    total = __shfl_sync(0xffffffff, end, 31);
  }

  // Of sequences from this one on, as far as there are any: all loads are on their way at once.
  static constexpr int kAtOnce = 4;
  __device__ __forceinline__ void look_up(int sequence, int (&pairs)[kAtOnce]) const {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) pairs[j] = pairs_of<C>(p, min(sequence + j, sequences_of<C>(p) - 1));
  }

  // Where a range begins.
  __device__ __forceinline__ int cut(int range, int ranges) const {
    const int each = quotient(total, ranges);
    return each * range + min(range, total - each * ranges);
  }

  // Precondition: 0 <= index < total.
  __device__ __forceinline__ PairPlace at(int index) const {
    const int lane = __popc(__ballot_sync(0xffffffff, end <= index));
    PairPlace place;
    place.sequence = lane * sequences_of_lane;
    place.pair = index - __shfl_sync(0xffffffff, end - of_lane, lane);
#pragma unroll 1
    for (;;) {
      int pairs[kAtOnce];
      look_up(place.sequence, pairs);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (place.pair < pairs[j]) return place;
        place.pair -= pairs[j];
        ++place.sequence;
      }
    }
  }
};

// Walks through a CTA's range, part by part. Every thread on its own, but all lanes of a warp begin together.
template <Config C>
struct Walk {
  const Params& p;
  PairPlace place;  // where the next part begins
  int left = 0;     // pairs from there on, or whole sequences
  int slot = 0;     // that a part takes there

  __device__ __forceinline__ explicit Walk(const Params& params) : p(params) {
    const int tiles = tiles_of_sequence<C>(p);
    const int range = quotient(static_cast<int>(blockIdx.x), tiles);
    const int ranges = quotient(static_cast<int>(gridDim.x), tiles);
    if constexpr (is_dealt(C)) {
      const PairRow<C> row(p);
      const int begin = row.cut(range, ranges);
      left = row.cut(range + 1, ranges) - begin;
      slot = 2 * static_cast<int>(blockIdx.x);
      if (left > 0) place = row.at(begin);
    } else {
      const int each = quotient(sequences_of<C>(p), ranges), more = sequences_of<C>(p) - each * ranges;
      place.sequence = each * range + min(range, more);
      left = each + (range < more ? 1 : 0);
    }
  }

  __device__ __forceinline__ bool next(Part& part) {
    if (left <= 0) return false;
    const int pairs = pairs_of<C>(p, place.sequence);
    part.sequence = place.sequence;
    part.begin = place.pair;
    if constexpr (is_dealt(C)) {
      part.end = min(pairs, place.pair + left);
      part.slot = part.begin == 0 && part.end == pairs ? -1 : slot;
      left -= part.end - part.begin;
      slot |= 1;
      place.pair = 0;
    } else {
      part.end = pairs;
      --left;
    }
    ++place.sequence;
    return true;
  }

  // Of the sequences' tiles that which this CTA has.
  __device__ __forceinline__ int tile() const {
    const int tiles = tiles_of_sequence<C>(p);
    return static_cast<int>(blockIdx.x) - quotient(static_cast<int>(blockIdx.x), tiles) * tiles;
  }
};

}  // namespace tessera::fmha_latent
