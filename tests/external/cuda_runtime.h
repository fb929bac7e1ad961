// What the parts of the emulated CUDA runtime share.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/emulator/device.h"

namespace tessera::external {

/// The one device, made on first use from the environment (cuda_runtime.cpp).
emulator::EmulatedDevice& device();
/// Whether the host function stands for a registered kernel.
bool is_kernel(const void* host);
/// The variable of a module that the host's one stands for; address 0: none.
emulator::DeviceVariable variable(const void* host);
/// Between memory of the device, of the host, or of both: addresses say which.
cudaError_t copy(void* to, const void* from, std::size_t bytes);

}  // namespace tessera::external
