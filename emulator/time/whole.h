// The time of a whole grid from the clusters that are simulated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "emulator/machine.h"
#include "emulator/time/clock.h"

namespace tessera::emulator {

struct TimedResult {
  LaunchStatistics statistics;
  std::vector<EmulatorFinding> findings;
};

/// Clusters of one launch: so many, each so far behind the one before.
struct ClusterRange {
  std::uint64_t first = 0, count = 1, step = 1;
};

/// One launch of some clusters, and what its clock showed.
struct SampledLaunch {
  SampleTime sample;
  std::unique_ptr<Clock> clock;
};

/// What clusters read and write.
struct Traffic {
  std::map<std::uint64_t, double> read_bytes{};  ///< by allocation
  double read_total = 0, written_bytes = 0;
  /// Of a clock, or of another one, so many times.
  template <class T>
  void add(const T& other, double times) {
    for (const auto& [address, bytes] : other.read_bytes) read_bytes[address] += times * bytes;
    read_total += times * other.read_total;
    written_bytes += times * other.written_bytes;
  }
};

/// With values all clusters run, each on the multiprocessor that it would have.
/// Else some: of a grid that is resident at once all that the first multiprocessor has of it, the last one, and two
/// between them, and more beside the longest where they differ, whose longest is the grid's time; of a larger one more,
/// between which the others are interpolated, and every cluster starts when one has ended. The time is added to
/// `times`: behind another kernel of the stream a launch costs what is left of it then, whichever kernel that is.
TimedResult run_on_clock(const GpuTime& gpu, const Program& program, const Entry& entry, GlobalMemory& memory,
                         const LaunchShape& shape, const LaunchOptions& options,
                         const std::vector<std::byte>& parameters, bool skips_values, std::vector<LaunchTime>& times);

/// Where samples of so many clusters begin: over the whole grid; where it has rows, of so many clusters, whose place in
/// a row tells more than the row, at all places, rows by turns. row: 0: it has none.
std::vector<std::uint64_t> places_of_samples(std::uint64_t clusters, std::uint64_t together, std::uint64_t wanted,
                                             std::uint64_t row);

/// Which clusters to look at besides: those halfway from the longest sample to its neighbours, where samples differ.
/// The longest that were taken may be at an edge (a tile with few rows), and those beside them take longer. Sorts them.
std::vector<std::uint64_t> beside_longest(std::vector<SampleTime>& samples);

/// Whether they take about as long; from those that began before cluster `resident` on, which are cold, so many cycles
/// are taken off.
bool differ_by_little(const std::vector<SampleTime>& samples, std::uint64_t resident, double cold_surplus);

/// Cycles of a grid's clusters in their order, each where one has ended, so much later, `resident` of them at once;
/// durations are interpolated between the samples, by their place in a row, where it has rows (else 0).
double cycles_in_waves(const std::vector<SampleTime>& samples, std::uint64_t clusters, std::uint64_t resident,
                       std::uint64_t row, double between);

/// Cycles of a grid whose clusters take so many with their part of the memory's rate, `alone` with a memory that is
/// never busy, and whose bytes take the memory so many: where the last two are about the same each waits for the other
/// at times.
double softened(double cycles, double alone, double memory, double sharpness);

/// Shared memory of a CTA of this launch.
double cta_shared_bytes(const Entry& entry, const LaunchShape& shape);

/// CTAs of a kernel that a multiprocessor holds.
/// `registers` of a thread, by machine code; 0: as PTX lets expect.
int ctas_per_sm(const GpuTime& gpu, const Entry& entry, const LaunchShape& shape, std::uint32_t registers = 0);

}  // namespace tessera::emulator
