// How long attention of NVFP4 operands takes, by a model like that of attention by mma.sync: published rates
// (generator/model_device.h), instructions as counted in the PTX. Nothing was measured.
#pragma once

#include "generator/mma_costs.h"
#include "spec/fmha_nvfp4.h"
#include "tessera/problem.h"

namespace tessera::fmha_nvfp4 {

struct FmhaNvfp4Cost {
  double us = 0;
  UnitWork work;
};

/// Sizes that no hint tells count as 4,096 queries and keys of 32 heads.
FmhaNvfp4Cost fmha_nvfp4_cost(const fmha_nvfp4::Config& config, const Fmha& problem, const MmaDevice& device);

}  // namespace tessera::fmha_nvfp4
