// Code that kernels have loaded on devices.
#pragma once

#include "tessera/device.h"

namespace tessera {

/// Before a device ends: every kernel of the process drops the code that it has there. Nothing may be launched on it
/// meanwhile, nor run there still.
void drop_loads(const Device& device) noexcept;

}  // namespace tessera
