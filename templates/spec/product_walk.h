// Which tiles of a product a CTA takes, as far as it is known when a kernel is compiled.
#pragma once

#include "tessera/spec/operand_type.h"

namespace tessera::gemm {

// A structural type: the walk's template parameter (gemm/product_walk.cuh).
struct ProductWalk {
  Grouping grouping = Grouping::none;
  int tile_m = 0;
  int tile_n = 0;
  int tile_k = 0;
  int cluster_m = 1;
  int cluster_n = 1;
  int split_k = 1;
  int raster = 1;                // tiles of clusters that are walked before the next one across
  bool is_pair_along_n = false;  // the pair of a cluster; else along m
  bool is_along_n = false;       // tiles are walked along n first

  TESSERA_HD friend constexpr bool operator==(const ProductWalk&, const ProductWalk&) = default;
};

TESSERA_HD constexpr int pair_size(const ProductWalk& w) {
  return (w.is_pair_along_n ? w.cluster_n : w.cluster_m) > 1 ? 2 : 1;
}
TESSERA_HD constexpr int cluster_size(const ProductWalk& w) { return w.cluster_m * w.cluster_n * w.split_k; }
// Pairs of CTAs in a cluster: ranks 2 i and 2 i + 1 are one.
TESSERA_HD constexpr int pairs(const ProductWalk& w) { return w.cluster_m * w.cluster_n / pair_size(w); }

}  // namespace tessera::gemm
