// How long attention_quantize takes, its three steps together, by a model like that of attention by mma.sync: published
// rates (generator/model_device.h), instructions as counted in the PTX. Nothing was measured.
#pragma once

#include "generator/mma_costs.h"
#include "spec/attention_quantize.h"
#include "tessera/problem.h"

namespace tessera::attention_quantize {

struct AttentionQuantizeCost {
  double us = 0;
  UnitWork work;
};

/// Sizes that no hint tells count as 4,096 queries and keys of 32 heads.
AttentionQuantizeCost attention_quantize_cost(const attention_quantize::Config& config,
                                              const AttentionQuantize& problem, const MmaDevice& device);

}  // namespace tessera::attention_quantize
