// A row's sums to values and scales of a block-scaled D: gemm/quantizer.cuh.
#pragma once

#include "gemm/quantizer.cuh"
#include "gemm_tcgen05/params.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// A D of plain elements has none.
struct NoQuantizer {
  __device__ __forceinline__ NoQuantizer(const Params&, int) {}
};
template <Config C, bool kIsQuantized = is_quantized(C)>
struct QuantizerOf {
  using type = gemm::Quantizer<C.facts.d_format, kLanes, panel_columns(C)>;
};
template <Config C>
struct QuantizerOf<C, false> {
  using type = NoQuantizer;
};

}  // namespace tessera::gemm_tcgen05
