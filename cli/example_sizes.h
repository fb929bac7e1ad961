// Sizes of products that nobody gave: such that the last tile of each direction has one row, or as few as a launch
// takes.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/internal/launch_sizes.h"
#include "tessera/plan.h"

namespace tessera::cli {

/// Completes `given` with m and n: whole tiles below `extent`, and one row more, or the least power of two of rows more
/// that the launch takes (of MN-major operands whole 16 bytes; of scaled ones whole blocks).
void add_rows_and_columns(const Plan& plan, std::int64_t extent, std::vector<GivenSize>& given);

}  // namespace tessera::cli
