// Argument sets for the differential fuzz of the tensor-map rules. Counter-based: case (seed, index) is the same on
// every machine and for any number of threads.
//
//   legal      every argument drawn over its whole legal range, extremes more often; entries past the rank are garbage
//   one        a legal set with one argument at a boundary: v - 1, v, v + 1 of every bound, any bit flipped, any value
//   several    two to four such mutations
//   footprint  legal but for the box, whose bytes are drawn around the bound
//   random     every argument from its boundary values or from all values
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/gpu_fuzz/tensor_map_arguments.h"

namespace tessera {

enum class Strategy : std::uint8_t { legal, one, several, footprint, random };
inline constexpr int kNumStrategies = 5;
std::string_view to_string(Strategy strategy);

/// The strategy of a case, by its index, and its arguments.
Strategy strategy_of(std::uint64_t index);
RawMap generate(std::uint64_t seed, std::uint64_t index);

/// The smallest sets on both sides of every bound of rules 1 to 20, each one argument away from a minimal legal set.
std::vector<RawMap> boundary_cases();

}  // namespace tessera
