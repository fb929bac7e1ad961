// What becomes of a loaded value that nobody has written: code without optimisation moves padding and unused members on
// to memory, and optimised code loads a variable that one of two paths has written, to choose by `selp` what it takes.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/emulator/findings.h"

namespace tessera::emulator {

class Warp;
struct Entry;
struct Instruction;

enum class ValueUse : std::uint8_t {
  moved,     ///< only moved on to memory, or not used at all
  computed,  ///< an instruction computes with it
  selected   ///< as computed, if a selp on the way takes it
};

/// What the text says of the value that the load at `pc` gives. Stored as it is, or after some of its bits were
/// replaced
/// (`and` with a number, then `or`: a bit field), not to global or shared memory by name, it is moved. Looks at the
/// instructions behind the load in their order, until the registers are written again.
ValueUse use_of_value(const Entry& entry, std::uint32_t pc);

/// A register of some lanes holds a value that nobody has written, and a selp will say whether that matters.
struct UndecidedValue {
  std::uint32_t offset = 0;
  std::uint32_t lanes = 0;
  std::shared_ptr<EmulatorFinding> finding;  ///< what to report when an instruction computes with it
};

/// Follows the value that `load` is about to give this lane.
void follow_value(Warp& w, const Instruction& load, int lane, EmulatorFinding finding);
/// The next instruction of a warp that has such values.
void follow_values(Warp& w, const Instruction& in, std::uint32_t active);

}  // namespace tessera::emulator
