#pragma once

#include "emulator/syntax/program.h"

namespace tessera::emulator {

/// The most words of registers that are alive at the same time in a thread of the kernel.
double registers_alive(const Entry& entry);

}  // namespace tessera::emulator
