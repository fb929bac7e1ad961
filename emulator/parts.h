// A grid in parts of its clusters, worked off by threads of the host.
//
// A part is a launch of its own: its clusters run one after the other, on the device's memory, with a random stream, an
// asynchronous queue and a log of findings of their own. How a grid is cut depends on the grid alone, and what is kept
// is joined in the order of the parts, so results and findings are the same for every number of threads. That holds for
// kernels whose clusters do not speak to each other; where they may (why_whole), the grid runs as a whole, on one
// thread. Atomic operations on integers are no speech where nothing reads their results and one order of them is as
// good as another: the host's own atomic operations do them, without a lock. A program whose clusters race reads and
// writes as the host's threads happen to: the race detector, which wants a whole grid, tells.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/machine.h"

namespace tessera::emulator {

/// By which instruction clusters may speak to each other; empty: by none. As long as the entry, so ask once.
std::string speech_of(const Entry& entry);
/// Why the grid must run as a whole; empty: parts will do. speech: speech_of() its entry.
std::string why_whole(const std::string& speech, const LaunchShape& shape, const LaunchOptions& options);

/// What the parts of a grid have in common while they run.
struct Parts {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  double start_seconds = 0;
  std::atomic<std::uint64_t> instructions{0};  ///< of all parts, as of their last looks
  std::atomic<std::uint64_t> failed{kNone};    ///< the first part that ended by a failure; those behind it give up
};

struct PartsResult {
  LaunchStatistics statistics;
  std::vector<EmulatorFinding> findings;
  std::vector<ScheduleClue> clues;
};
/// On up to so many threads: more than the caller's are started once there is work for them. What kernels print comes
/// when the grid has ended, part by part. Precondition: why_whole() is empty.
PartsResult run_in_parts(const Program& program, const Entry& entry, GlobalMemory& memory, const LaunchShape& shape,
                         const LaunchOptions& options, const std::vector<std::byte>& parameters, int threads);

}  // namespace tessera::emulator
