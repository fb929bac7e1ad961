// Merges the parts of tiles that dealt keys cut: warps for the rows of each cut between two CTAs' ranges.
//
// A tile that several cuts lie in belongs to the first of them. Its first part is the last of the CTA before that cut,
// the others are each the first of a CTA behind one. What is looked up in lengths is known before the parts are.
//
// Parts with a size of their own lie in slots of their tile, in their order: a few CTAs for each tile look whether it
// has more than one.
#pragma once

#include "attention/merge.cuh"
#include "fmha/dealer.cuh"
#include "fmha/epilogue.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "fmha/step_work.cuh"
#include "ptx/griddepcontrol.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// The tile that has this number among those of parts, in the order of tile_of_parts(); whether there is one.
struct NumberedTile {
  TileIndex tile;
  bool is_there;
};
template <Config C>
__device__ __forceinline__ NumberedTile tile_of_number(const Params& p, int number) {
  const int heads = tile_heads<C>(p);
  if constexpr (!is_ragged(C.facts)) {
    const int tiles = tiles_of_head<C>(p, 0);
    const int head = quotient(number, tiles);
    return {{number - head * tiles, head}, true};
  }
  const int of_heads = quotient(number, heads);  // the tile's number in one head
  int begun = 0;                                 // sequences whose tiles begin there or before
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < p.batch; i += 32)
    begun += first_tile_of_parts<C>(p, i) <= of_heads ? 1 : 0;
  const int sequence = __reduce_add_sync(0xffffffff, begun) - 1;
  if (sequence < 0) return {{0, 0}, false};
  const int m = of_heads - first_tile_of_parts<C>(p, sequence);
  TileIndex tile{m, sequence * heads + number - of_heads * heads};
  know_sequence<C>(p, tile, sequence);
  return {tile, m >= 0 && m < tiles_of_head<C>(p, sequence)};
}

// Parts with a size of their own: a warp for each row of a tile, or for some where it has many.
template <Config C>
__device__ __forceinline__ void merge_sized(const Params& p) {
  const int ctas_of_tile = merge_ctas_of_tile(rows_of_slot<C>(p));
  const int number = quotient(static_cast<int>(blockIdx.x), ctas_of_tile);
  const int cta = static_cast<int>(blockIdx.x) - number * ctas_of_tile;
  const auto [tile, is_there] = tile_of_number<C>(p, number);
  const HeadIndex at = is_there ? head_of<C>(p, tile) : HeadIndex{0, 0};
  const int parts = is_there ? units_of<C>(p, at.batch, tile.m) : 0;
  ptx::griddepcontrol_wait();
  if (parts <= 1) return;  // the tile is whole
  const int rows = min(rows_of_slot<C>(p), rows_of_tile_head<C>(p, tile) - tile.m * C.tile_m);
#pragma unroll 1
  for (int row = cta * kMergeRows + static_cast<int>(threadIdx.x) / 32; row < rows; row += ctas_of_tile * kMergeRows) {
    const int own = tile.m * C.tile_m + row;
    attention::merge_row<C>(
        p.partial_o, p.partial_sums, parts, [&](int part) { return part_row<C>(p, number * p.max_parts + part, row); },
        o_row_of<C>(p, at, first_query<C>(p, at.batch), own),
        {p.lse, p.row_max, p.row_sum, p.sink, at.head * C.pack_gqa + own % C.pack_gqa}, statistic_of<C>(p, tile, own));
  }
}

// A tile that a cut lies in, and its parts.
struct CutTile {
  BlockPlace place{};
  int parts = 0;  // 0: it is whole, or another cut's
  int first_slot = 0;
};
// cut: where range `before` + 1 begins. begin_of(i): where range i does, of num_ctas in all.
template <class BeginOf>
__device__ __forceinline__ CutTile tile_of_cut(const Params& p, int before, const Cut& cut, BeginOf begin_of) {
  CutTile found{cut.place};
  if (cut.blocks == 0) return found;
  const int begin = cut.begin - cut.place.block;
  const int begin_before = begin_of(before);
  found.first_slot = 2 * before + (begin_before == begin ? 0 : 1);
  if (begin < cut.begin && begin_before <= begin) {
    found.parts = 2;
#pragma unroll 1
    while (before + found.parts < p.num_ctas && begin_of(before + found.parts) < begin + cut.blocks) ++found.parts;
  }
  return found;
}
// Where ranges are equal, all lanes find it together, from lengths alone.
template <Config C>
__device__ __forceinline__ CutTile tile_of_equal_cut(const Params& p, int before) {
  const BlockRow<C> blocks(p);
  Cut cut{blocks.cut(before + 1, p.num_ctas), {}, 0};
  if (cut.begin < blocks.total) {
    cut.place = blocks.at(cut.begin);
    cut.blocks = blocks_of<C>(p, cut.place.sequence, cut.place.m);
  }
  return tile_of_cut(p, before, cut, [&](int i) { return blocks.cut(i, p.num_ctas); });
}

template <Config C>
__device__ __forceinline__ int merge_ctas_of_cut(int rows) {
  constexpr int kRows = has_whole_tiles(C) ? kMergeRowsOfCut : kMergeRows;
  return (rows + kRows - 1) / kRows;
}

template <Config C>
__device__ __forceinline__ void merge_dealt(const Params& p) {
  ptx::griddepcontrol_launch_dependents();  // as merge()
  if constexpr (has_split_size(C.facts)) {
    merge_sized<C>(p);
    return;
  }
  const int ctas_of_cut = merge_ctas_of_cut<C>(rows_of_slot<C>(p));
  const int before = quotient(static_cast<int>(blockIdx.x), ctas_of_cut);
  const int cta = static_cast<int>(blockIdx.x) - before * ctas_of_cut;
  const int first = cta * kMergeRows + static_cast<int>(threadIdx.x) / 32;
  CutTile found;
  if constexpr (!has_whole_tiles(C)) found = tile_of_equal_cut<C>(p, before);
  ptx::griddepcontrol_wait();
  if constexpr (has_whole_tiles(C))
    found = tile_of_cut(p, before, cut_of(p, before + 1), [&](int i) { return cut_of(p, i).begin; });
  if (found.parts == 0) return;  // nor is there a sequence, perhaps
  const BlockPlace& place = found.place;
  TileIndex tile{place.m, place.sequence * tile_heads<C>(p) + place.head};
  know_sequence<C>(p, tile, place.sequence);
  const int rows_apart = 2 * rows_of_slot<C>(p);
  const auto merge = [&](int row, int own) {
    // Of the first part, and of number 0 among the others, which lie two slots apart.
    const long long first_row = part_row<C>(p, found.first_slot, row), zeroth_row = part_row<C>(p, 2 * before, row);
    attention::merge_row<C>(
        p.partial_o, p.partial_sums, found.parts,
        [&](int part) { return part == 0 ? first_row : zeroth_row + static_cast<long long>(part) * rows_apart; },
        o_row_of<C>(p, {place.head, place.sequence}, first_query<C>(p, place.sequence), own),
        {p.lse, p.row_max, p.row_sum, p.sink, place.head * C.pack_gqa + own % C.pack_gqa},
        statistic_of<C>(p, tile, own));
  };
  const int own = place.m * C.tile_m + first;
  if constexpr (!has_whole_tiles(C)) {
    if (found.parts == 0 || first >= rows_of_slot<C>(p) || own >= rows_of_tile_head<C>(p, tile)) return;
    merge(first, own);
  } else {
    if (found.parts == 0) return;
    const int rows = min(rows_of_slot<C>(p), rows_of_tile_head<C>(p, tile) - place.m * C.tile_m);
#pragma unroll 1
    for (int row = first; row < rows; row += ctas_of_cut * kMergeRows) merge(row, place.m * C.tile_m + row);
  }
}

}  // namespace tessera::fmha
