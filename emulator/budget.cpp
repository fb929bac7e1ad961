// When a launch has gone on for long enough.
#include <fmt/format.h>

#include <chrono>

#include "emulator/parts.h"
#include "emulator/scheduler.h"

namespace tessera::emulator {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A grid that runs as a whole is asked at every look: its device counts (EmulatedDevice::launch).
bool Scheduler::is_interrupted() {
  if (launch_.options.parts == nullptr) return launch_.options.is_interrupted();
  constexpr double kSecondsBetween = 0.1;
  const double now = seconds_now();
  if (now < next_question_) return false;
  next_question_ = now + kSecondsBetween;
  return launch_.options.is_interrupted();
}

bool Scheduler::within_budget() {
  Parts* const parts = launch_.options.parts;
  std::uint64_t instructions = launch_.time;
  // A look at the clock costs as much as ten instructions, and so does one at what other threads write.
  const bool looks = ++slices_ % 64 == 0;
  if (parts != nullptr && looks) {
    if (parts->failed < launch_.options.part) return false;
    instructions = parts->instructions += launch_.time - launch_.counted;
    launch_.counted = launch_.time;
  }
  const bool out_of_instructions = instructions > launch_.options.max_warp_instructions;
  const bool interrupted = looks && launch_.options.is_interrupted && is_interrupted();
  if (!out_of_instructions && !interrupted) {
    if (launch_.options.max_seconds <= 0 || !looks) return true;
    if (seconds_now() - launch_.start_seconds < launch_.options.max_seconds) return true;
  }
  EmulatorFinding finding;
  finding.name = interrupted ? "interrupted" : out_of_instructions ? "instruction-budget" : "time-budget";
  finding.is_failure = true;
  finding.entry = launch_.entry.name;
  finding.message = fmt::format("stopped after {} warp instructions", launch_.time);
  finding.cause = interrupted ? "the caller asked for it" : "an endless loop, or a grid too large for the emulator";
  name_running_group(finding);
  launch_.findings.add(std::move(finding));
  return false;
}

}  // namespace tessera::emulator
