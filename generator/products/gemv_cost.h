// How long a gemv by sm_120's and sm_121's kernels takes, by a model like that of the products by mma.sync: published
// rates (generator/model_device.h), instructions as counted in the PTX. Nothing was measured. There are no tensor cores
// in it: products are fma's of f16 pairs, or of fp32.
#pragma once

#include "generator/mma_costs.h"
#include "spec/gemv.h"
#include "tessera/problem.h"

namespace tessera::gemv {

struct GemvCost {
  double us = 0;
  UnitWork work;
};

/// Sizes that no hint tells count as 4,096 rows and columns of one matrix.
GemvCost gemv_cost(const gemv::Config& config, const Gemv& problem, const MmaDevice& device);

}  // namespace tessera::gemv
