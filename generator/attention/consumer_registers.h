// Registers of attention's consumers on Hopper that the compiler does not see, and the statements that use them.
#pragma once

#include <string>

#include "spec/fmha.h"

namespace tessera::fmha {

/// A complete header, "wgmma_shapes.cuh", that specialises fmha::ConsumerRegisters for a Config by wgmma.
std::string consumer_registers(const Config& config);

}  // namespace tessera::fmha
