// The launch of row operators: sizes, buffers and parameters that follow from a chain.
#pragma once

#include <string>

#include "spec/rows.h"
#include "tessera/launch.h"

namespace tessera {

/// Whether eps is one of the launch's scalars.
constexpr bool has_row_norm(const RowChain& chain) {
  return has_part(chain, RowPart::rmsnorm) || has_part(chain, RowPart::layernorm) ||
         has_part(chain, RowPart::mhc_mix) || begins_with_product(chain);
}

LaunchPlan rows_launch(const rows::Config& config, const std::string& arch, const std::string& kernel);

}  // namespace tessera
