// How long a launch would take on a GPU that is described in numbers: what the time model answers (docs/time.md).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::emulator {

struct GpuTime;  // emulator/time/gpu_time.h

/// The description that a name ("h200", "H200") or a path of a JSON file stands for. Throws Error{usage} with the known
/// names where there is none, Error{usage} where a file does not describe a GPU.
std::shared_ptr<const GpuTime> find_gpu_time(const std::string& name_or_path);
/// Names of the descriptions that the library carries.
std::vector<std::string> gpu_time_names();

/// Multiprocessors of the described GPU.
int sms_of(const GpuTime& gpu);
/// Its target, "sm_100a", and its name, "B200".
const std::string& arch_of(const GpuTime& gpu);
const std::string& name_of(const GpuTime& gpu);

/// How far predictions for a GPU were off where they could be compared.
struct PredictionError {
  double median_percent = 0;
  std::string source;  ///< with what they were compared; empty: with nothing
};
PredictionError error_of(const GpuTime& gpu);

/// Warps of a CTA that do one thing, over all simulated CTAs: means of a warp, in cycles.
struct RoleTime {
  int first_warp = 0, last_warp = 0;
  double instructions = 0;
  double cycles = 0;                    ///< from the warp's start to its end
  std::map<std::string, double> waits;  ///< cycles by what it waited for; "issue": the instructions themselves
};

/// A unit's work, over the time of the simulated CTAs: 1 is all of it.
struct UnitTime {
  std::string name;
  double busy = 0;
};

/// CTAs that ran together on one multiprocessor, or on one for each rank of a cluster.
struct SampleTime {
  std::uint64_t cluster = 0;  ///< the first of them
  int clusters = 1;
  double cycles = 0;
};

/// One kernel of a launch.
struct LaunchTime {
  std::string gpu;
  std::string entry;
  double cycles = 0;        ///< of the whole grid
  double microseconds = 0;  ///< with what a launch costs
  double launch_us = 0;     ///< of it, the launch
  double clock_mhz = 0;
  std::string limit;  ///< the unit that binds
  std::uint64_t clusters = 0;
  int ctas_per_sm = 1;
  double waves = 0;
  std::uint32_t registers = 0;  ///< of a thread, by machine code; 0: not known
  int spill_bytes = -1;         ///< stored and loaded by its code for want of registers, not in the time; -1: not known
  bool is_whole = false;        ///< all CTAs were simulated; else what `samples` says, and the rest is extrapolated
  double global_read_bytes = 0, global_written_bytes = 0, hbm_bytes = 0;  ///< of the whole grid, extrapolated
  std::vector<SampleTime> samples;
  std::vector<RoleTime> roles;
  std::vector<UnitTime> units;
};

}  // namespace tessera::emulator
