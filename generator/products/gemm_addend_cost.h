// What a product's c adds to the time of a tile, where it is added in the epilogue of products by wgmma.
#pragma once

#include "spec/gemm.h"

namespace tessera::gemm {

/// Cycles of a tile's c: its loads, panel by panel, and their way to the sums. 0 without c.
double addend_cycles(const Config& config);

/// The share of them that a tile takes longer where two warpgroups take turns: the rest runs beside the other's
/// products.
double addend_share_in_turn(const Config& config);

}  // namespace tessera::gemm
