// Registers of latent attention's consumers over 8-bit keys that the compiler does not see, and the statements that use
// them.
#pragma once

#include <string>

#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

/// A complete header, "wgmma_shapes.cuh", that specialises fmha_latent::Registers for a Config of 8-bit keys.
std::string widened_registers(const Config& config);

}  // namespace tessera::fmha_latent
