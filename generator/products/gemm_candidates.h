// What a product's Config has of the problem alone, and rows that a group of the raster has.
#pragma once

#include "spec/gemm.h"
#include "tessera/problem.h"

namespace tessera::gemm {

/// Rows of D that a group of tiles along m has, where nothing is pinned: 132 tiles that run at once form about a
/// square.
inline constexpr int kGemmRasterRows = 2048;

/// Types, layouts and epilogue; the rest is Config's defaults.
gemm::Config gemm_facts(const Gemm& problem, SwapAb swap_ab = SwapAb::off);

/// The product that a group has, of rows that are dealt evenly where the groups lie one after another.
Gemm product_of_group(const Gemm& problem);

}  // namespace tessera::gemm
