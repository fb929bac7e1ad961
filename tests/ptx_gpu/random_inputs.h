// Random inputs for one-instruction tests, made to hurt: boundary values of every width, numbers of one format packed
// into a register with exponents near each other or far apart, neighbours that cancel.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/emulator/ptx_case.h"

namespace tessera::emulator::testing {

inline constexpr int kInputStyles = 10;

/// `lanes` rows of inputs. style 0 ... kInputStyles - 1 chooses what they look like; every style and seed gives the
/// same numbers on every machine.
std::vector<std::uint64_t> random_inputs(const PtxCase& test, std::size_t lanes, int style, std::uint64_t seed);

}  // namespace tessera::emulator::testing
