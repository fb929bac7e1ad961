// Merges the parts of tiles that dealt keys cut: a warp for each row of each cut between two CTAs' ranges.
//
// A tile that several cuts lie in belongs to the first of them. Its first part is the last of the CTA before that cut,
// the others are each the first of a CTA behind one. What is looked up in lengths is known before the parts are.
#pragma once

#include "attention/merge.cuh"
#include "fmha/dealer.cuh"
#include "fmha/epilogue.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "ptx/griddepcontrol.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
__device__ __forceinline__ void merge_dealt(const Params& p) {
  ptx::griddepcontrol_launch_dependents();  // as merge()
  const int warps_of_cut = (rows_of_slot<C>(p) + kMergeRows - 1) / kMergeRows;
  const int before = quotient(static_cast<int>(blockIdx.x), warps_of_cut);  // the CTA before the cut
  const int row = (static_cast<int>(blockIdx.x) - before * warps_of_cut) * kMergeRows + threadIdx.x / 32;
  const BlockRow<C> blocks(p);
  const int cut = blocks.cut(before + 1, p.num_ctas);
  BlockPlace place;
  int parts = 0;
  int first_slot = 0;
  if (cut < blocks.total) {
    place = blocks.at(cut);
    const int begin = cut - place.block;
    const int end = begin + blocks_of<C>(p, place.sequence, place.m);
    const int begin_before = blocks.cut(before, p.num_ctas);
    first_slot = 2 * before + (begin_before == begin ? 0 : 1);
    if (begin < cut && begin_before <= begin) {
      parts = 2;
#pragma unroll 1
      while (blocks.cut(before + parts, p.num_ctas) < end) ++parts;
    }
  }
  ptx::griddepcontrol_wait();
  const TileIndex tile{place.m, place.sequence * tile_heads<C>(p) + place.head};
  const int own = place.m * C.tile_m + row;
  if (parts == 0 || row >= rows_of_slot<C>(p) || own >= rows_of_tile_head<C>(p, tile)) return;
  attention::merge_row<C>(
      p.partial_o, p.partial_sums, parts,
      [&](int part) { return part_row<C>(p, part == 0 ? first_slot : 2 * (before + part), row); },
      o_row_of<C>(p, {place.head, place.sequence}, own),
      {p.lse, p.row_max, p.row_sum, p.sink, place.head * C.pack_gqa + own % C.pack_gqa}, statistic_of<C>(p, tile, own));
}

}  // namespace tessera::fmha
