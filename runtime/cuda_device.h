// A GPU behind the Device seam: the driver API with symbols resolved at run time, so that every program starts without
// a driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/device.h"

namespace tessera {

/// Why no GPU can be used; empty when one can. "libcuda.so.1 not found", "no CUDA device", "driver 12.4 is older
/// than 12.8", ...
std::string cuda_unavailable_reason();
int cuda_device_count();

/// retain_primary_context: the device makes its primary context current on the calling thread and keeps it alive
/// (programs of their own: the command, tests). Without it the device works in whatever context the caller has current
/// (guests).
std::unique_ptr<Device> make_cuda_device(int ordinal = 0, bool retain_primary_context = true);

}  // namespace tessera
