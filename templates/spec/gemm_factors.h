// Factors of blocks of a matrix product on Hopper (a_scale_block, b_scale_block), as a slot of its ring has them: how
// many there are, and whether the warps that load them leave products of A's and B's.
#pragma once

#include "spec/gemm_config.h"
#include "spec/product_facts.h"
#include "tessera/spec/types.h"

namespace tessera::gemm {

// Squares that a tile of `extent` rows may touch.
TESSERA_HD constexpr int squares_of(int extent) {
  const bool begins_with_square = extent % kScaleBlock == 0 || kScaleBlock % extent == 0;
  return (extent + kScaleBlock - 1) / kScaleBlock + (begins_with_square ? 0 : 1);
}

// Factors in the slot of a step: one for each row of a tile of `extent`, or of each square those of four steps, which
// are 16 bytes. Those of A stand before those of B.
inline constexpr int kStepsOfSquare = 4;
TESSERA_HD constexpr int scale_floats(ScaleBlock block, int extent) {
  return block == ScaleBlock::none ? 0 : block == ScaleBlock::of_row ? extent : kStepsOfSquare * squares_of(extent);
}
TESSERA_HD constexpr int a_scale_floats(const Config& c) { return scale_floats(a_scale_block(c), c.tile_m); }
TESSERA_HD constexpr int b_scale_floats(const Config& c) { return scale_floats(b_scale_block(c), c.tile_n); }

// Whether the warps that load factors multiply those of rows of A by those of squares of B: consumers find products,
// those of a thread beside each other. Large tiles of many rows: few need them sooner, and get copies into the slots.
TESSERA_HD constexpr bool joins_factors(const Config& c) {
  return a_scale_block(c) == ScaleBlock::of_row && b_scale_block(c) == ScaleBlock::square && !is_gathered(c) &&
         c.box_m >= kMostBoxRows &&
         (consumer_warpgroups(c) == 2 ? blocks(c) * c.tile_n > kScaleBlock
                                      : consumer_warpgroups(c) == 3 && c.tile_n == kScaleBlock);
}
// Places in a square where tiles of `extent` rows begin are multiples of this.
TESSERA_HD constexpr int unit_of_offsets(int extent) {
  int unit = kScaleBlock;
  while (extent % unit != 0) unit /= 2;
  return unit;
}
// Squares of B that the columns of a tile may touch.
TESSERA_HD constexpr int joined_squares(const Config& c) {
  return (kScaleBlock - unit_of_offsets(c.tile_n) + c.tile_n + kScaleBlock - 1) / kScaleBlock;
}
// Warps that do, and steps whose factors of A are under way to a ring of each of them, behind the slots.
inline constexpr int kJoiners = 2;
inline constexpr int kStepsAhead = 4;
TESSERA_HD constexpr int scale_ring_bytes(const Config& c) {
  return joins_factors(c) ? 4 * kJoiners * kStepsAhead * c.tile_m : 0;
}
// Of a thread, in a step: two rows of each block, times squares.
TESSERA_HD constexpr int joined_factors(const Config& c) { return 2 * blocks(c) * joined_squares(c); }

TESSERA_HD constexpr int scale_slot_bytes(const Config& c) {
  if (joins_factors(c)) return 4 * c.tile_m * joined_squares(c);
  return 4 * (a_scale_floats(c) + b_scale_floats(c));
}

}  // namespace tessera::gemm
