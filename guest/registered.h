// Registered memory has two addresses. Programs pass the host's to kernels all the same, as GPUs with
// cudaDevAttrCanUseHostPointerForRegisteredMem let them.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::guest {

/// Words of a kernel's arguments that are addresses of registered memory become the device's.
void use_device_addresses(std::vector<std::byte>& arguments);

}  // namespace tessera::guest
