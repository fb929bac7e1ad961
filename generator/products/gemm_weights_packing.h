// Products with 4-bit weights that come in rows, as a checkpoint has them (scale_form plain): a step before the product
// packs them into the workspace, as pack_weights does, and the product reads them there. It is for weights that are
// used once, or that no second copy may stay of: every launch reads and writes all of them once more.
#pragma once

#include <string>

#include "spec/gemm_weights.h"
#include "tessera/plan.h"
#include "tessera/source_bundle.h"

namespace tessera::gemm_weights {

inline bool packs_first(const Config& c) { return c.scale_form == ScaleForm::plain; }

/// What the product's launch becomes: operands and buffers b, sfb and zeros in place of packed weights, a workspace,
/// and the step in front.
void add_packing(const Config& config, Plan& plan);
std::string packing_call(const Config& config);
/// packing.cuh: the Config of that step.
SourceFile packing_header(const Config& config);

}  // namespace tessera::gemm_weights
