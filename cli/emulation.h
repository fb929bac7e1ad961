// What every command that runs in the emulator shares: its flags (who runs when, how long) and how findings are shown.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/launch_json.h"
#include "cli/flags.h"
#include "emulator/findings/finding_json.h"
#include "tessera/emulator/device.h"

namespace tessera::cli {

class Call;

struct EmulatorFlags {
  std::string schedule = "fair";
  std::int64_t max_instructions = std::int64_t{1} << 40;
  std::int64_t max_seconds = 600;  ///< of one launch; 0: no limit
  bool detects_races = false;
  bool is_strict = false;    ///< hazards fail the call, races among them
  std::int64_t num_sms = 0;  ///< 0: the default
  std::int64_t threads = 0;  ///< 0: 1, and of a program as many as the machine has cores
  bool shows_statistics = false;
  std::string trace, timeline;  ///< files
  std::string time;             ///< a GPU, whose clock launches run on
  bool skips_values = false;

  void add_to(FlagSet& flags);
  /// Something was asked for that only the emulator gives.
  bool observes() const { return watches() || !time.empty(); }
  bool watches() const { return shows_statistics || !trace.empty() || !timeline.empty(); }
  /// What --time names, null without it. Throws Error{usage} for flags that do not go with it.
  std::shared_ptr<const emulator::GpuTime> described_gpu() const;
  /// What --schedule asks for, all four in the order of the manual page for `all`. Throws Error{usage}.
  std::vector<emulator::Schedule> schedules() const;
  /// A device for code of this target; what kernels print goes to stdout, with --json to stderr. Throws
  /// Error{unsupported} when the emulator does not know the target.
  std::unique_ptr<emulator::EmulatedDevice> open(const Call& call, const std::string& arch, std::uint64_t seed) const;
};

using emulator::finding_json;
/// Adds what is new; what has the name and the template line (without one: the PTX line) of a known one adds to its
/// count. True when a failure is among them.
bool merge_findings(std::vector<emulator::EmulatorFinding>& all, std::vector<emulator::EmulatorFinding> found);

/// Findings that are hazards; one at several places of the PTX is several.
std::int64_t hazards_of(const std::vector<emulator::EmulatorFinding>& findings);
/// The first word of a result: "pass", "pass, 1 hazard", "FAIL, 2 hazards".
std::string verdict_text(bool pass, std::int64_t hazards);
/// Why a run fails, in one line: the first failure, else the first problem, else the first hazard (which only a strict
/// call fails for), and how many there are besides.
std::string why_failed(const std::string& what, const std::vector<emulator::EmulatorFinding>& findings,
                       const std::vector<std::string>& problems, bool is_strict);

/// On how many threads a launch ran, and why on one where more were asked for: into a schedule's entry.
void add_threads(OrderedJson& schedule, const emulator::LaunchStatistics& statistics);
/// One line a schedule: seed, instructions, time.
std::string schedule_lines(const OrderedJson& schedules);

/// True when code for `arch` ("sm_90a", "sm_100f", "sm_80") runs on the device.
bool runs_code(const DeviceInfo& device, const std::string& arch);

}  // namespace tessera::cli
