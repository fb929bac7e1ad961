// Mistakes in products on tcgen05 for likely_cause(): those of product_suspects.h with the steps and tiles of its
// kernels, and what may go wrong behind the sums.
#pragma once

#include <optional>
#include <vector>

#include "reference/gemm_gated.h"
#include "reference/likely_cause.h"
#include "reference/operand_source.h"
#include "reference/product_finishes.h"
#include "spec/product_facts.h"

namespace tessera::reference {

struct Tcgen05Sources {
  OperandSource a, b;
  std::optional<OperandSource> b2;
};

/// in: c, bias, beta and what the gate's and up's sums are multiplied by. The suspects refer to the buffers of all.
std::vector<Suspect> tcgen05_suspects(const ProductFacts& facts, const ProductTiles& tiles, const GatedInputs& in,
                                      const ProductFactors& factors, const Tcgen05Sources& sources,
                                      const TensorView& d);

}  // namespace tessera::reference
