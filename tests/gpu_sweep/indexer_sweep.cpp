// Random indexers on the GPU against float64: heads, dimensions, forms, pages, families, ranges, strides; each launched
// twice over poison, whose bytes must agree and stay where nothing is to be written. Case number N is that of seed N.
//
//   indexer_sweep [--cases N] [--shapes 3] [--seed S] [--seconds S] [--keys 20000] [--queries 200] [--emulate]
//
// Exit code 0: all pass; 1: a mismatch (printed with what repeats it); 77: no GPU here. --emulate: in the emulator, for
// three targets in turn, with few keys.
#include "tests/support/indexer_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "tessera/cuda_device.h"
#include "tessera/emulator/device.h"
#include "tessera/jit.h"

namespace tessera {
namespace {

struct Settings {
  std::uint64_t seed = 0;
  int cases = 40, shapes = 3;
  std::int64_t keys = 20000, queries = 200;
  double seconds = 1e9;
  bool is_emulated = false;
};

int sweep(const Settings& settings, Device* gpu) {
  constexpr const char* kEmulated[] = {"sm_90a", "sm_100a", "sm_120a"};
  Jit jit(JitOptions::from_environment());
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t rows = 0;
  int failures = 0;
  double worst = 0;
  std::uint64_t seed = settings.seed;
  for (; seed < settings.seed + static_cast<std::uint64_t>(settings.cases); ++seed) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > settings.seconds) break;
    const Arch arch = Arch::parse(settings.is_emulated ? kEmulated[seed % 3] : "sm_90a");
    rows_sweep::Draw draw(seed);
    const Problem problem = indexer_sweep::drawn_problem(draw, arch);
    std::unique_ptr<Device> emulated;
    if (settings.is_emulated)
      emulated = std::make_unique<emulator::EmulatedDevice>(
          emulator::DeviceOptions{.arch = arch.to_string(), .detects_races = true});
    Device& device = emulated ? *emulated : *gpu;
    const std::shared_ptr<Kernel> kernel = jit.kernel(problem);
    for (int i = 0; i < settings.shapes; ++i) {
      const rows_sweep::Judged judged = indexer_sweep::judged_case(kernel->plan(), device, kernel->launcher(device),
                                                                   draw, settings.keys, settings.queries);
      rows += judged.rows;
      worst = std::max(worst, judged.worst);
      if (judged.problems.empty()) continue;
      ++failures;
      fmt::print("FAIL --seed {} --cases 1: {}, {}\n  {}\n", seed, kernel->plan().kernel, judged.sizes,
                 fmt::join(judged.problems, "\n  "));
    }
    if (failures > 20) throw Error(ErrorKind::device, "more than 20 failures: stopping");
  }
  fmt::print("{} cases, {} rows compared, {} failures, worst {:.2f} of what roundings explain, seeds {} to {}\n",
             seed - settings.seed, rows, failures, worst, settings.seed, seed - 1);
  return failures;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  CLI::App app{"Random indexers on the GPU against float64"};
  app.add_option("--cases", settings.cases, "drawn kernels");
  app.add_option("--shapes", settings.shapes, "launches of each with drawn sizes");
  app.add_option("--seed", settings.seed, "of the first case");
  app.add_option("--seconds", settings.seconds, "no case is begun after that");
  app.add_option("--keys", settings.keys, "most keys");
  app.add_option("--queries", settings.queries, "most queries");
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
    fmt::print(stderr, "indexer_sweep: {}\n", error.what());
    for (const std::string& note : error.notes()) fmt::print(stderr, "  {}\n", note);
    return 5;
  }
}
