// What the GPU says about itself. cudaDeviceAttr and CUdevice_attribute have the same numbers.
#pragma once

#include <cstddef>

namespace tessera::guest {

/// 0 for what the GPU does not have, and for numbers that mean nothing.
int device_attribute(int attribute);
/// cudaLimit and CUlimit.
bool has_device_limit(int limit);
std::size_t device_limit(int limit);
void set_device_limit(int limit, std::size_t value);

inline constexpr int kDriverVersion = 13000;

}  // namespace tessera::guest
