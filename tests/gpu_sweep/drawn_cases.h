// Sweeps whose case number N is the case of seed N: their options, the walk over the seeds, and a case's device.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "tessera/emulator/device.h"
#include "tests/support/rows_sweep.h"

namespace tessera::gpu_sweep {

struct DrawnCases {
  std::uint64_t seed = 0;  ///< of the first case
  int cases = 40, shapes = 3;
  double seconds = 1e9;
  bool is_emulated = false;
  std::string state;
};

inline void add_options(CLI::App& app, DrawnCases& settings) {
  app.add_option("--cases", settings.cases, "drawn kernels");
  app.add_option("--shapes", settings.shapes, "launches of each with drawn sizes");
  CLI::Option* const seed = app.add_option("--seed", settings.seed, "of the first case");
  app.add_option("--state", settings.state, "file with the first seed, written with the next one")->excludes(seed);
  app.add_option("--seconds", settings.seconds, "no case is begun after that");
  app.add_flag("--emulate", settings.is_emulated, "in the emulator");
}

/// What a case runs for and on: sm_90a and the GPU, or in the emulator, races detected, one of three targets in turn.
class CaseDevice {
 public:
  CaseDevice(const DrawnCases& settings, std::uint64_t seed, Device* gpu) : gpu_(gpu) {
    constexpr const char* kEmulated[] = {"sm_90a", "sm_100a", "sm_120a"};
    arch_ = Arch::parse(settings.is_emulated ? kEmulated[seed % 3] : "sm_90a");
    if (settings.is_emulated)
      emulated_ = std::make_unique<emulator::EmulatedDevice>(
          emulator::DeviceOptions{.arch = arch_.to_string(), .detects_races = true});
  }
  Arch arch() const { return arch_; }
  Device& device() const { return emulated_ ? *emulated_ : *gpu_; }

 private:
  Device* gpu_;
  Arch arch_;
  std::unique_ptr<Device> emulated_;
};

/// Whether a launch is right; prints what is wrong with it, and what repeats it, if not.
inline bool is_right(const rows_sweep::Judged& judged, std::uint64_t seed, const std::string& kernel) {
  if (judged.problems.empty()) return true;
  fmt::print("FAIL --seed {} --cases 1: {}, {}\n  {}\n", seed, kernel, judged.sizes,
             fmt::join(judged.problems, "\n  "));
  std::fflush(stdout);
  return false;
}

struct Walked {
  int cases = 0, failures = 0;
  std::uint64_t first = 0, last = 0;  ///< seeds
};

/// one_case(seed) gives the number of failures, or -1 for a case that does not count. Throws an Error after 20
/// failures.
template <class OneCase>
Walked walk(const DrawnCases& settings, OneCase&& one_case) {
  const bool has_state = !settings.state.empty();
  const auto begin = std::chrono::steady_clock::now();
  Walked walked;
  walked.first =
      has_state && std::filesystem::exists(settings.state) ? std::stoull(read_text(settings.state)) : settings.seed;
  std::uint64_t seed = walked.first;
  for (; walked.cases < settings.cases; ++seed) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > settings.seconds) break;
    const int found = one_case(seed);
    if (found < 0) continue;
    ++walked.cases;
    walked.failures += found;
    if (has_state) write_file(settings.state, fmt::format("{}\n", seed + 1));
    if (walked.failures > 20) throw Error(ErrorKind::device, "more than 20 failures: stopping");
  }
  walked.last = seed - 1;
  return walked;
}

}  // namespace tessera::gpu_sweep
