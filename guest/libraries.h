// Libraries of NVIDIA's whose device code is machine code: what the emulator cannot run.
#pragma once

#include <string>
#include <vector>

namespace tessera::guest {

/// File names ("libcublas.so.13") of those that the process has loaded, sorted.
std::vector<std::string> libraries_of_machine_code();

/// Says of each once that its kernels cannot run here.
void tell_libraries_of_machine_code();

}  // namespace tessera::guest
