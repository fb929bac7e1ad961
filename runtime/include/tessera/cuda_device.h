// A GPU behind the Device seam: the driver API with symbols resolved at run time, so that every program starts without
// a driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/device.h"

namespace tessera {

/// The oldest driver that is used, by the CUDA that it is for; runtime/cuda_driver.h says what it has.
inline constexpr int kMinDriverVersion = 12040;

/// Why no GPU can be used; empty when one can. "no driver: libcuda.so.1 was not found", "no CUDA device is visible",
/// "the driver supports CUDA 12.2: CUDA 12.4 or later is needed", ...
std::string cuda_unavailable_reason();
int cuda_device_count();
/// CUDA version of the driver, 13000 for 13.0; 0 without a driver.
int cuda_driver_version();
/// Ordinal of the device whose context is current on this thread; -1 when there is none.
int cuda_current_device();

/// retain_primary_context: the device makes its primary context current on the calling thread and keeps it alive
/// (programs of their own: the command, tests); a thread that has no context gets it at its first call. Without it the
/// device works in whatever context the caller has current (guests). A context that the caller made current is used in
/// both cases.
std::unique_ptr<Device> make_cuda_device(int ordinal = 0, bool retain_primary_context = true);

}  // namespace tessera
