// Mistakes in products on sm_90a (wgmma) for likely_cause(): those of product_suspects.h, with steps of 128 bytes of k,
// and what such kernels have besides: promotion, fp32 factors of blocks, groups, rows by a list.
#pragma once

#include <string>
#include <vector>

#include "reference/gemm.h"
#include "reference/likely_cause.h"

namespace tessera::reference {

/// What a mistake takes in place of an operand: of another group, say.
struct OtherOperands {
  std::string cause;
  GemmInputs inputs;
};

/// Of the formula in the head of gemm.h, or with check.facts.gate of its gate. The suspects refer to the buffers
/// of all. d_dtype: what results are rounded to.
std::vector<Suspect> gemm_suspects(const GemmInputs& inputs, const GemmCheck& check, DType d_dtype,
                                   const std::vector<OtherOperands>& others);

}  // namespace tessera::reference
