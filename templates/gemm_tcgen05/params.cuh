// What the entry was launched with.
#pragma once

#include "gemm/product_params.cuh"

namespace tessera::gemm_tcgen05 {

using Params = gemm::ProductParams;

}  // namespace tessera::gemm_tcgen05
