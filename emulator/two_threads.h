// A grid in two halves of its clusters, a host thread for each.
//
// The first half runs on the device's memory, the second on a copy, so neither sees what the other writes and a run is
// the same whenever it is repeated. Afterwards what the second half wrote is copied back. That is the grid's meaning as
// long as clusters do not speak to each other: a kernel with atomics, strong accesses or reductions on global memory,
// or with clusterlaunchcontrol, runs on one thread, and so does, once more and from the memory of before, one whose
// halves have written the same byte. A half that reads what the other one writes sees the old bytes: nothing orders the
// two.
#pragma once

#include <string>
#include <vector>

#include "emulator/machine.h"

namespace tessera::emulator {

/// Why the kernel must run on one thread; empty: two will do.
std::string why_one_thread(const Entry& entry, const LaunchShape& shape, const LaunchOptions& options);

struct TwoThreadResult {
  bool is_done = false;  ///< false: the memory is as before, and the grid must run on one thread
  std::string reason;    ///< why it is not done
  LaunchStatistics statistics;
  std::vector<EmulatorFinding> findings;
  std::vector<ScheduleClue> clues;
};
/// Precondition: why_one_thread() is empty.
TwoThreadResult run_on_two_threads(const Program& program, const Entry& entry, GlobalMemory& memory,
                                   const LaunchShape& shape, const LaunchOptions& options,
                                   const std::vector<std::byte>& parameters);

}  // namespace tessera::emulator
