// Dynamic parallelism and what else the device's runtime (cudadevrt, machine code) has: PTX of ours under the same
// names is linked to a program that calls it. A kernel's launches are written down by the kernel and run when its grid
// has ended, which is one of the orders that a GPU may run them in: a grid cannot wait for those that it launches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "guest/work.h"

namespace tessera::guest {

/// A name of the device's runtime, as nvcc 12 and 13 call it or as those before did.
bool is_of_device_runtime(std::string_view name);
/// The text declares a function of the device's runtime that it does not define.
bool needs_device_runtime(std::string_view ptx);
/// The runtime for a program with these kernels.
std::string device_runtime(const std::vector<std::string>& kernels);

/// Runs what a grid of the module has launched, and what that launches. Nothing without the device's runtime.
cudaError_t run_launches_of(Module& module);

}  // namespace tessera::guest
