// What the driver knows of an address (CUDA Driver API, cuPointerGetAttribute).
#pragma once

#include <string>

#include "runtime/cuda_driver.h"

namespace tessera {

/// As PointerProbe::why_unusable. Memory of a device, managed memory, and pinned host memory that devices see at the
/// same address can be used. An address that the driver does not know cannot, unless devices read all of the process's
/// memory (reads_pageable: CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS). Memory that was given back to a pool, or to an
/// allocator of the caller's, is still known.
std::string why_unusable(const CudaApi& api, CuPointer pointer, bool reads_pageable);

}  // namespace tessera
