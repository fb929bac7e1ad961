// What the two halves of the emulated CUDA runtime share.
#pragma once

#include "tessera/emulator/device.h"

namespace tessera::external {

/// The one device, made on first use from the environment (cuda_runtime.cpp).
emulator::EmulatedDevice& device();
/// Whether the host function stands for a registered kernel.
bool is_kernel(const void* host);

}  // namespace tessera::external
