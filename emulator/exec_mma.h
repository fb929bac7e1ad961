// What the binders of mma.sync share; internal to exec_mma.cpp and exec_mma_integer.cpp.
#pragma once

#include "emulator/isa.h"
#include "emulator/math/fragments.h"

namespace tessera::emulator::bind {

/// K of m16n8k32; 0 when the opcode names no such shape.
int mma_k(const Decoded& d);
/// m8n8k*: A has 8 rows.
bool mma_has_8_rows(const Decoded& d);
/// D, A, B and C have as many registers as shape and element width ask for; `results` of D and C.
bool mma_lists_fit(const Decoded& d, int element_bits, int results);

}  // namespace tessera::emulator::bind
