// What gemm_sweep runs.
#pragma once

#include <vector>

#include "tessera/problem.h"

namespace tessera {

std::vector<Gemm> gemm_sweep_problems();

}  // namespace tessera
