// PTX from CUDA sources, for end-to-end tests: by nvcc where there is one.
#pragma once

#include <string>

namespace tessera::emulator::testing {

/// The PTX of a .cu file under the source folder; empty without nvcc. Throws std::runtime_error when nvcc fails.
std::string compile_with_nvcc(const std::string& source, const std::string& arch, const std::string& extra);

}  // namespace tessera::emulator::testing
