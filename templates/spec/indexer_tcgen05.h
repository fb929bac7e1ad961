// Scores of an indexer on data-centre Blackwell (tcgen05): what its instructions and Tensor Memory look like. The
// Config, its rules, shared memory, entry parameters and launch are those of every family: spec/indexer.h.
//
//   Tensor Memory, columns:  [accumulator][loaded_columns]          fp32, a lane is a key of the tile
//                            [accumulator][4]                       mxfp4: scales of the tile's keys
//                            [slot of queries][128 columns][4]      mxfp4: scales of heads
//
// A scale's cell has the four ue8m0 of a row; an instruction of mxf4 takes 64 elements, and so two of them. Rows r, r +
// 32, r + 64 and r + 96 lie side by side in a tile of scales, a word each, as tcgen05.cp wants them: the multiplying
// warp puts them there, in the slot that TMA filled.
//
// Made after the PTX manual, checked by ptxas and by the emulator of this project; no Blackwell device has run it.
#pragma once

#include "spec/indexer.h"
#include "spec/smem_descriptor.h"
#include "tessera/spec/instruction_descriptor.h"

namespace tessera::indexer_tcgen05 {

using namespace indexer;
using indexer::Config;
using layout::Tcgen05Kind;
using layout::Tcgen05Type;

inline constexpr int kScaleBlock = 32;

TESSERA_HD constexpr Tcgen05Kind kind(const Config& c) { return is_fp4(c) ? Tcgen05Kind::mxf4 : Tcgen05Kind::f8f6f4; }
// Of step `step`, 32 bytes of rows.
TESSERA_HD constexpr layout::InstructionDescriptor instruction(const Config& c, int step) {
  layout::InstructionDescriptor d;
  d.a = d.b = is_fp4(c) ? Tcgen05Type::e2m1 : Tcgen05Type::e4m3;
  d.d = layout::Tcgen05Result::f32;
  d.m = kLanes;
  d.n = loaded_columns(c);
  if (is_fp4(c)) d.scale_id_a = d.scale_id_b = 2 * step;
  return d;
}

struct TmemLayout {
  int key_scales = 0, query_scales = 0;  // the first column of each
  int used = 0;
  int allocated = 0;  // the power of two that tcgen05.alloc takes
};
TESSERA_HD constexpr int query_scale_columns(const Config& c) { return query_scale_tiles(c) * kScaleTileColumns; }
TESSERA_HD constexpr TmemLayout tmem_layout(const Config& c) {
  TmemLayout map;
  map.key_scales = accumulators(c) * loaded_columns(c);
  map.query_scales = map.key_scales + (is_fp4(c) ? accumulators(c) * kScaleTileColumns : 0);
  map.used = map.query_scales + (is_fp4(c) ? kQuerySlots * query_scale_columns(c) : 0);
  map.allocated = 32;
  while (map.allocated < map.used) map.allocated *= 2;
  return map;
}

// Columns that a thread loads at a time.
TESSERA_HD constexpr int chunk_columns(const Config& c) {
  return columns_of_tile(c) % 32 == 0 ? 32 : columns_of_tile(c) % 16 == 0 ? 16 : 8;
}

}  // namespace tessera::indexer_tcgen05
