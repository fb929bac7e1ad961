// Whether a loaded value only goes on to memory: what code without optimisation does with padding and unused members.
#pragma once

#include <cstdint>

namespace tessera::emulator {

struct Entry;

/// The value that the load at `pc` gives is stored as it is, or after some of its bits were replaced (`and` with a
/// number, then `or`: a bit field), or not used at all; not to global or shared memory by name. Looks at the
/// instructions behind the load in their order, until the registers are written again.
bool is_only_moved(const Entry& entry, std::uint32_t pc);

}  // namespace tessera::emulator
