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

/// Whether up to 128 rows have fewer slots than there is memory for: tiles of 64 rows of a, for which no other CTA
/// loads. What all CTAs ask for at once when a launch begins comes to their first slots the later, the more of them
/// there are. On an H200 128 KB took 0.89 to 1.01 of the time of 192 (128 x 2,112 x 7,168 8.25 and 8.87 us), 64 x 192
/// tiles 0.99; tiles of two warpgroups up to 1.02.
inline constexpr int kShortRingBytes = 128 << 10;
constexpr bool ring_is_short(const gemm::Config& c) {
  return gemm::has_scale_blocks(c) && !gemm::is_grouped(c) && !gemm::is_swapped(c) && !gemm::is_gated(c) &&
         gemm::multicast_size(c) == 1 && gemm::consumer_warpgroups(c) == 1;
}

/// The product that a group has, of rows that are dealt evenly where the groups lie one after another.
Gemm product_of_group(const Gemm& problem);

}  // namespace tessera::gemm
