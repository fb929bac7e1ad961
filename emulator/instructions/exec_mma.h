// What the binders of mma.sync share; internal to exec_mma*.cpp, but for mma_quarter, which the table names.
#pragma once

#include "emulator/math/fragments.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator::bind {

/// m8n8k4 of f16 (exec_mma_quarter.cpp).
Handler mma_quarter(const Decoded& d);

/// K of m16n8k32; 0 when the opcode names no such shape.
int mma_k(const Decoded& d);
/// m8n8k*: A has 8 rows.
bool mma_has_8_rows(const Decoded& d);
/// D, A, B and C have as many registers as shape and element width ask for; `results` of D and C.
bool mma_lists_fit(const Decoded& d, int element_bits, int results);

}  // namespace tessera::emulator::bind
