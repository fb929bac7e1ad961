// What the emulator has to say about a run: values, never exceptions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device.h"

namespace tessera::emulator {

/// A failure ends the launch (the result would be wrong or the hardware would trap); a hazard is reported and the run
/// goes on.
struct EmulatorFinding {
  std::string name;  ///< "smem-out-of-bounds", "deadlock", ...
  bool is_failure = false;
  std::string entry;
  int ptx_line = 0;
  std::string instruction;  ///< the opcode
  std::string source_file;  ///< the template's place, when the PTX has line tables
  int source_line = 0;
  std::string source_place;  ///< file and line, and where they were inlined
  std::array<std::uint32_t, 3> cta{};
  int warp = -1;
  int lane = -1;  ///< the first of the lanes concerned
  std::uint64_t address = 0;
  bool has_address = false;
  std::string message;      ///< what was found and what was expected
  std::string cause;        ///< the usual mistake behind it; may be empty
  std::uint64_t count = 1;  ///< how often at this place

  /// One paragraph with every place that is known.
  std::string to_string() const;
  Finding to_finding() const { return {name, to_string(), is_failure}; }
};

/// Collects findings; those of one name at one PTX line are one finding with a count.
/// What a launch did that another schedule may do otherwise. Nothing is wrong with it, unless the outputs differ.
struct ScheduleClue {
  EmulatorFinding finding;      ///< what it is called then
  std::uint64_t signature = 0;  ///< the same where the launch did the same
};

/// Those of `other` that `first` does not have, or has with another signature: the hazards of a launch whose outputs
/// are unlike the first one's.
std::vector<EmulatorFinding> clues_to_difference(const std::vector<ScheduleClue>& first,
                                                 const std::vector<ScheduleClue>& other);

class FindingLog {
 public:
  void add(EmulatorFinding finding);
  /// Until null is given, hazards of memory that was read too early go there; their order is kept.
  void capture(std::vector<EmulatorFinding>* into) { captured_ = into; }
  bool is_capturing() const noexcept { return captured_ != nullptr; }
  bool has_failure() const noexcept { return has_failure_; }
  /// Calls of add() so far.
  std::uint64_t added() const noexcept { return added_; }
  const std::vector<EmulatorFinding>& all() const noexcept { return findings_; }

 private:
  std::vector<EmulatorFinding> findings_;
  bool has_failure_ = false;
  std::uint64_t added_ = 0;
  std::vector<EmulatorFinding>* captured_ = nullptr;
};

}  // namespace tessera::emulator
