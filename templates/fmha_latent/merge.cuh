// Merges the parts of sequences that dealt keys cut: a warp for kRowsOfMergeWarp rows of a tile, for each cut between
// two ranges. All warps look the same up in lengths, which takes as long as a row.
//
// A sequence that several cuts lie in belongs to the first of them. Its first part is the last of the range before that
// cut, the others are each the first of a range behind one. What is looked up in lengths is known before the parts are.
#pragma once

#include "attention/merge.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/epilogue.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/tails.cuh"
#include "ptx/griddepcontrol.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

template <Config C>
__device__ __forceinline__ void merge_dealt(const Params& p) {
  ptx::griddepcontrol_launch_dependents();  // as attention::merge()
  const int tiles = tiles_of_sequence<C>(p);
  constexpr int kRowsOfCta = kMergeRows * kRowsOfMergeWarp;
  const int ctas_of_tile = (rows_of_slot<C>(p) + kRowsOfCta - 1) / kRowsOfCta;
  const int tile_of_cut = quotient(static_cast<int>(blockIdx.x), ctas_of_tile);
  const int before = quotient(tile_of_cut, tiles);  // the range before the cut
  const int tile = tile_of_cut - before * tiles;
  const int of_cta = (static_cast<int>(blockIdx.x) - tile_of_cut * ctas_of_tile) * kRowsOfCta;
  const PairRow<C> pairs(p);
  const int cut = pairs.cut(before + 1, p.num_ctas);
  PairPlace place;
  int parts = 0;
  int first_slot = 0;
  if (cut < pairs.total) {
    place = pairs.at(cut);
    const int begin = cut - place.pair;
    const int end = begin + pairs_of<C>(p, place.sequence);
    const int begin_before = pairs.cut(before, p.num_ctas);
    first_slot = 2 * (before * tiles + tile) + (begin_before == begin ? 0 : 1);
    if (begin < cut && begin_before <= begin) {
      parts = 2;
#pragma unroll 1
      while (pairs.cut(before + parts, p.num_ctas) < end) ++parts;
    }
  }
  ptx::griddepcontrol_wait();
  if (parts == 0) return;
  if constexpr (joins_tails(C)) {
    if (ptx::ld_global_s32_written(tail_word(p, before * tiles + tile, kTailIsAdded)) != 0) return;
  }
#pragma unroll 1
  for (int i = 0; i < kRowsOfMergeWarp; ++i) {
    const int row = of_cta + i * kMergeRows + threadIdx.x / 32;
    const int own = tile * C.tile_m + row;
    if (row >= rows_of_slot<C>(p) || own >= rows_of_sequence<C>(p)) return;
    // Of the first part, and of number 0 among the others, which lie two slots of each tile apart.
    const long long first_row = part_row<C>(p, first_slot, row);
    const long long zeroth_row = part_row<C>(p, 2 * (before * tiles + tile), row);
    const int rows_apart = 2 * tiles * rows_of_slot<C>(p);
    attention::merge_row<C>(
        p.partial_o, p.partial_sums, parts,
        [&](int part) { return part == 0 ? first_row : zeroth_row + static_cast<long long>(part) * rows_apart; },
        o_row_of<C>(p, place.sequence, own), {p.lse, nullptr, nullptr, p.sink, own},
        statistic_of<C>(p, place.sequence, own));
  }
}

}  // namespace tessera::fmha_latent
