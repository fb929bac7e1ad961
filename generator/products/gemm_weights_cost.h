// How long a product with 4-bit weights takes, by a model: what the busiest multiprocessor reads, widens and
// multiplies, whichever takes longest. It was fitted to runs on an H200.
#pragma once

#include "spec/gemm_weights.h"
#include "tessera/problem.h"

namespace tessera::gemm_weights {

struct GemmWeightsCost {
  double cycles = 0;  ///< of kHopper.clock_ghz
  const char* bound = "";
};
GemmWeightsCost gemm_weights_cost(const Config& config, const Gemm& problem);

}  // namespace tessera::gemm_weights
