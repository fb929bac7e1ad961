// The copy of a tensor of rank 1 to 5 by TMA, tile by tile: y = x. What a Config is, which ones are legal, and what
// follows from one: shared memory, threads, bytes of a copy. Planner and device code evaluate the same functions.
//
// A CTA of one warp copies one tile: load, wait, store. Tile i of the grid is i taken apart by the tile counts of the
// dimensions, innermost first. What a tile has beyond the tensor's end is filled with zeros on the way in and dropped
// on the way out.
//
// Tensor maps x and y, alike but for strides: type of the Config (e4m3 and e5m2 travel as u8), interleave none, element
// strides 1, zero fill, the Config's box and swizzle.
//   dims    {max(dim0, 1), ...}, strides {stride1, ...} in bytes: multiples of 16
// Entry parameters, in this order:
//   const __grid_constant__ TensorMap x, y
//   int tiles0, tiles1, tiles2, tiles3   tiles along dimensions 0 to 3; 1 past the rank
// Launch: grid {product of the tile counts of all dimensions, 1, 1}, block {32, 1, 1}, dynamic shared memory
// smem_layout().total_bytes, no cluster, no workspace. A grid of 0 has nothing to do.
//
// Copied as tf32 an fp32 value is rounded to nearest even on its way in; all other types keep their bits.
#pragma once

#include "spec/limits.h"
#include "tessera/spec/types.h"

namespace tessera::copy2d {

inline constexpr int kMaxRank = 5;
inline constexpr int kNumThreads = 32;

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  int rank = 2;
  DType dtype = DType::f32;
  int box[kMaxRank] = {32, 64, 1, 1, 1};  // a tile's extents in elements, innermost first; 1 past the rank
  Swizzle swizzle = Swizzle::b128;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The limits of sm_90a that the rules use.
inline constexpr int kMaxBoxExtent = 256;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  rank_out_of_range,               // rank; 5
  box_extent_out_of_range,         // the extent; 256
  box_beyond_rank,                 // the extent of a dimension that the tensor doesn't have; 1
  inner_bytes_not_multiple_of_16,  // bytes of a tile's row; 16
  inner_bytes_beyond_span,         // bytes of a tile's row; bytes of the swizzle span
  shared_memory_exceeded,          // bytes; 232,448
};

TESSERA_HD constexpr int inner_bytes(const Config& c) { return c.box[0] * dtype_bytes(c.dtype); }

// Rows of a tile: all its extents but the innermost.
TESSERA_HD constexpr long long num_rows(const Config& c) {
  long long rows = 1;
  for (int d = 1; d < kMaxRank; ++d) rows *= c.box[d];
  return rows;
}

// From one row to the next in shared memory. A swizzled row takes the whole span, however narrow the box is.
TESSERA_HD constexpr int row_pitch_bytes(const Config& c) {
  return c.swizzle == Swizzle::none ? inner_bytes(c) : swizzle_span_bytes(c.swizzle);
}

// What a load credits to its barrier: the box, always whole, without the gaps between narrow rows.
TESSERA_HD constexpr long long transfer_bytes(const Config& c) { return num_rows(c) * inner_bytes(c); }

// Dynamic shared memory: the tile at 0 (a swizzle pattern starts on 1,024 bytes), then the barrier.
struct SmemLayout {
  long long tile_bytes = 0;
  long long barrier_offset = 0;
  long long total_bytes = 0;
};

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.tile_bytes = num_rows(c) * row_pitch_bytes(c);
  layout.barrier_offset = round_up(layout.tile_bytes, 8);
  layout.total_bytes = layout.barrier_offset + 8;
  return layout;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.rank < 1 || c.rank > kMaxRank) return {Rule::rank_out_of_range, c.rank, kMaxRank};
  for (int d = 0; d < kMaxRank; ++d) {
    if (c.box[d] < 1 || c.box[d] > kMaxBoxExtent) return {Rule::box_extent_out_of_range, c.box[d], kMaxBoxExtent};
    if (d >= c.rank && c.box[d] != 1) return {Rule::box_beyond_rank, c.box[d], 1};
  }
  const int inner = inner_bytes(c);
  if (inner % 16 != 0) return {Rule::inner_bytes_not_multiple_of_16, inner, 16};
  const int span = swizzle_span_bytes(c.swizzle);
  if (c.swizzle != Swizzle::none && inner > span) return {Rule::inner_bytes_beyond_span, inner, span};
  const long long bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

}  // namespace tessera::copy2d
