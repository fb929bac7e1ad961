// How long a product by mma.sync takes, by a model: what a Config is scored with. Rates are published ones (an RTX
// 5090: 170 multiprocessors, 1.79 TB/s), for Hopper as far as it differs; but for slots of few rows, whose time was
// fitted to three products on an H200, nothing was measured, so the model orders candidates and promises nothing.
//
// A step of 128 bytes along K takes about as long as the slowest of four: the tensor cores; shared memory, which is
// written once and read by every warp for its own part of a tile; what the L2 delivers to one multiprocessor; and the
// way of a slot from its release to its next contents, which all slots share. A tile takes its steps and its stores,
// with a split K a part of the steps, barriers of the cluster and the exchange of partial sums; tiles are dealt out in
// rounds over the multiprocessors, and a launch takes at least what memory needs for its bytes.
#pragma once

#include "generator/mma_costs.h"
#include "spec/gemm_mma.h"
#include "tessera/problem.h"

namespace tessera::gemm_mma {

struct GemmMmaCost {
  double cycles = 0;
  double us = 0;
  long long rounds = 0;     ///< tiles that a CTA takes one after the other
  double tensor_share = 0;  ///< of the rate that the tensor cores have for these operands
  UnitWork work;
};

/// On the device that choices for the target go by.
GemmMmaCost gemm_mma_cost(const gemm_mma::Config& config, const Gemm& problem);
GemmMmaCost gemm_mma_cost(const gemm_mma::Config& config, const Gemm& problem, const MmaDevice& device);

}  // namespace tessera::gemm_mma
