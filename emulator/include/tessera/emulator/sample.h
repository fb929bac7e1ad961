// Launches of which some clusters run, over memory of which little is written: how problems that are far too large for
// a CPU are looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/emulator/options.h"

namespace tessera::emulator {

/// Bytes [first, first + bytes) of a range.
struct ByteRange {
  std::size_t first = 0, bytes = 0;
};

/// How many clusters of a grid ran.
struct ClusterSample {
  std::uint64_t run = 0, of_grid = 0;
};

std::uint64_t clusters_of(const LaunchShape& shape);
/// Ascending: the first, the last, and one at a random place of each equal part between them; all where they are few.
std::vector<std::uint64_t> chosen_clusters(std::uint64_t of_grid, std::uint64_t count, std::uint64_t seed);

/// The initialised bytes among allocated ones, in order.
std::vector<ByteRange> written_ranges(std::span<const std::uint8_t> shadow);

}  // namespace tessera::emulator
