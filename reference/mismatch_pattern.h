// What wrong elements have in common, as the hardware sees them: the places of a tile, of a warp, of a lane, of a scale
// block, and the factor between what was found and what was expected. A fault in a layout shows in one of these long
// before anybody finds it in the code.
#pragma once

#include <string>
#include <vector>

#include "reference/comparison.h"

namespace tessera::reference {

/// Sentences without a full stop, the most telling first; none when the wrong elements look random. An axis called
/// "row" and one called "column" are the matrix that warps and lanes tile.
std::vector<std::string> mismatch_patterns(const std::vector<Mismatch>& mismatches, const std::vector<Axis>& axes,
                                           Accumulator accumulator = Accumulator::any);

/// Periods that hardware layouts have, tried besides an axis's own blocks.
inline constexpr std::int64_t kLayoutPeriods[] = {8, 16, 32, 64, 128};

}  // namespace tessera::reference
