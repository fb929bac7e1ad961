// The compiler of kernels that run in the emulator.
#pragma once

#include <memory>

#include "tessera/compiler.h"

namespace tessera::testing {

/// Nothing, with a message, where there is no NVRTC. Compiles each kernel once in a process; to PTX alone, which is all
/// that the emulator reads, unless the assembler's opinion is asked.
std::unique_ptr<Compiler> find_compiler(bool makes_cubin = false);

}  // namespace tessera::testing
