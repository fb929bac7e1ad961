// Random row operators and routers on the GPU against float64: chains of parts, types, columns, rows, strides; each
// launched twice over poison, whose bytes must agree and stay where nothing is to be written. Case number N is that of
// seed N: with --state a run goes on where the last one ended.
//
//   rows_sweep [--cases N] [--shapes 3] [--seed S | --state FILE] [--seconds S] [--columns 4096] [--rows 300]
//              [--only PART] [--emulate]
//
// Exit code 0: all pass; 1: a mismatch (printed with what repeats it); 77: no GPU here. --emulate: in the emulator, for
// three families in turn, with few small rows.

#include "tests/support/rows_sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "generator/facts.h"
#include "tessera/cuda_device.h"
#include "tessera/emulator/device.h"
#include "tessera/jit.h"

namespace tessera {
namespace {

struct Settings {
  std::uint64_t seed = 0;
  int cases = 40, shapes = 3, columns = 4096, rows = 300;
  double seconds = 1e9;
  bool is_emulated = false;
  std::string state, only;
};

std::string text_of(const Problem& problem) {
  if (operator_name(problem) != "rows") return planned_kernel(problem);
  const auto& rows = problem.as<Rows>();
  return fmt::format("rows columns={} dtype={} chain={}", rows.columns, static_cast<int>(rows.dtype),
                     to_text(rows.chain));
}

/// Of one seed; the number of failures, or -1 for a case that is not asked for.
int one_case(const Settings& settings, std::uint64_t seed, Device* gpu, Jit& jit, std::int64_t& rows, int& refused) {
  constexpr const char* kEmulated[] = {"sm_90a", "sm_100a", "sm_120a"};
  rows_sweep::Draw draw(seed);
  const Arch arch = Arch::parse(settings.is_emulated ? kEmulated[seed % 3] : "sm_90a");
  const Problem problem = rows_sweep::drawn_problem(draw, arch, settings.columns, refused);
  if (!settings.only.empty() && text_of(problem).find(settings.only) == std::string::npos) return -1;
  std::unique_ptr<Device> emulated;
  if (settings.is_emulated)
    emulated = std::make_unique<emulator::EmulatedDevice>(
        emulator::DeviceOptions{.arch = arch.to_string(), .detects_races = true});
  Device& device = emulated ? *emulated : *gpu;
  const std::shared_ptr<Kernel> kernel = jit.kernel(problem);
  int failures = 0;
  for (int i = 0; i < settings.shapes; ++i) {
    const rows_sweep::Judged judged =
        rows_sweep::judged_case(problem, device, kernel->launcher(device), draw, settings.rows);
    rows += judged.rows;
    if (judged.problems.empty()) continue;
    ++failures;
    fmt::print("FAIL --seed {} --cases 1: {}, {}\n  {}\n", seed, text_of(problem), judged.sizes,
               fmt::join(judged.problems, "\n  "));
  }
  return failures;
}

int sweep(Settings settings, Device* gpu) {
  if (!settings.state.empty() && std::filesystem::exists(settings.state))
    settings.seed = std::stoull(read_text(settings.state));
  Jit jit(JitOptions::from_environment());
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t rows = 0;
  int failures = 0, cases = 0, refused = 0;
  std::uint64_t seed = settings.seed;
  for (; cases < settings.cases; ++seed) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > settings.seconds) break;
    const int found = one_case(settings, seed, gpu, jit, rows, refused);
    if (found < 0) continue;
    ++cases;
    failures += found;
    if (!settings.state.empty()) write_file(settings.state, fmt::format("{}\n", seed + 1));
    if (failures > 20) throw Error(ErrorKind::device, "more than 20 failures: stopping");
  }
  fmt::print("{} cases, {} rows compared, {} failures, {} chains refused, seeds {} to {}\n", cases, rows, failures,
             refused, settings.seed, seed - 1);
  return failures;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  CLI::App app{"Random row operators on the GPU against float64"};
  app.add_option("--cases", settings.cases, "drawn kernels");
  app.add_option("--shapes", settings.shapes, "launches of each with drawn sizes");
  CLI::Option* const seed = app.add_option("--seed", settings.seed, "of the first case");
  app.add_option("--state", settings.state, "file with the first seed, written with the next one")->excludes(seed);
  app.add_option("--seconds", settings.seconds, "no case is begun after that");
  app.add_option("--columns", settings.columns, "most columns");
  app.add_option("--rows", settings.rows, "most rows");
  app.add_option("--only", settings.only, "cases whose text has this");
  app.add_flag("--emulate", settings.is_emulated, "in the emulator");
  CLI11_PARSE(app, argc, argv);
  try {
    if (settings.is_emulated) return sweep(settings, nullptr) == 0 ? 0 : 1;
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) {
      fmt::print("skipped: {}\n", reason);
      return 77;
    }
    const auto device = make_cuda_device();
    return sweep(settings, device.get()) == 0 ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "rows_sweep: {}\n", error.what());
    for (const std::string& note : error.notes()) fmt::print(stderr, "  {}\n", note);
    return 5;
  }
}
