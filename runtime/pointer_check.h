// The launcher's option to ask the device about every pointer first. Cold code: may allocate and format.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/launcher.h"
#include "tessera/pointer_probe.h"

namespace tessera {

/// Throws Error{usage} for the first buffer (or the workspace) whose first or last element lies where the device's
/// kernels cannot reach. sizes: of the launch, defaults filled in. Buffers without elements are not looked at.
void check_pointers(const LaunchPlan& plan, const LaunchArguments& arguments, std::span<const std::int64_t> sizes,
                    std::int64_t workspace_bytes, PointerProbe& probe);

}  // namespace tessera
