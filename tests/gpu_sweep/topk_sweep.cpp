// Random choices of rows' k largest on the GPU against sorting: types, k, ties, orders, ranges, forms of indices,
// threads and clusters, rows, columns, strides; each launched twice over poison, whose bytes must agree and stay where
// nothing is to be written. Case number N is that of seed N: with --state a run goes on where the last one ended.
//
//   topk_sweep [--cases N] [--shapes 3] [--seed S | --state FILE] [--seconds S] [--columns 200000] [--rows 40]
//              [--only PART] [--emulate]
//
// Exit code 0: all pass; 1: a mismatch (printed with what repeats it); 77: no GPU here. --emulate: in the emulator, for
// three families in turn, with few short rows.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "reference/topk.h"
#include "tessera/cuda_device.h"
#include "tessera/emulator/device.h"
#include "tessera/jit.h"
#include "tests/support/rows_sweep.h"

namespace tessera {
namespace {

using rows_sweep::Draw;

struct Settings {
  std::uint64_t seed = 0;
  int cases = 40, shapes = 3;
  std::int64_t columns = 200000, rows = 40;
  double seconds = 1e9;
  bool is_emulated = false;
  std::string state, only;
};

Topk drawn_problem(Draw& draw, Arch arch) {
  constexpr DType kTypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};
  constexpr int kSome[] = {1, 2, 31, 32, 33, 512, 1024, 2047, 2048};
  constexpr int kCtas[] = {1, 2, 4, 8, 16};
  Topk problem{.arch = arch, .dtype = draw.of(kTypes)};
  problem.k = draw.one_in(2) ? draw.of(kSome) : static_cast<int>(draw.pick(1, 2048));
  problem.ties = draw.one_in(2) ? Ties::smaller : Ties::larger;
  problem.order = draw.one_in(3) ? ResultOrder::value : ResultOrder::index;
  problem.range = static_cast<RowRange>(draw.pick(0, 2));
  problem.index_form = static_cast<IndexForm>(draw.pick(0, 2));
  problem.values = draw.one_in(2) ? WithValues::on : WithValues::off;
  problem.guesses = draw.one_in(3) ? WithGuesses::on : WithGuesses::off;
  if (!draw.one_in(4)) {
    problem.threads = arch.compute_major() == 12 || draw.one_in(2) ? 512 : 1024;
    problem.ctas = kCtas[draw.pick(0, arch.compute_major() == 12 ? 3 : 4)];
  }
  return problem;
}

rows_sweep::Judged judged_topk(const Topk& problem, Device& device, const Launcher& launcher, Draw& draw,
                               const Settings& settings) {
  reference::TopkRun run;
  run.dtype = problem.dtype;
  run.k = problem.k;
  run.ties = problem.ties;
  run.order = problem.order;
  run.range = problem.range;
  run.index_form = problem.index_form;
  run.values = problem.values;
  run.guesses = problem.guesses;
  run.m = draw.pick(draw.one_in(10) ? 0 : 1, settings.rows);
  run.n = draw.pick(0, draw.one_in(3) ? 3 * problem.k : draw.one_in(2) ? settings.columns / 10 : settings.columns);
  // A few long rows now and then, which leave no room in shared memory.
  if (draw.one_in(8) && !settings.is_emulated) run.n = 5 * settings.columns + draw.pick(0, 9), run.m = draw.pick(1, 5);
  std::map<std::string, std::int64_t> sizes{{"m", run.m}, {"n", run.n}};
  if (problem.index_form == IndexForm::pages) {
    run.page_size = draw.pick(1, 130);
    run.max_pages = std::max<std::int64_t>(run.n / run.page_size + draw.pick(-1, 2), 0);
    run.sequences = draw.pick(1, run.m + 1);
    sizes.insert({{"page_size", run.page_size}, {"max_pages", run.max_pages}, {"sequences", run.sequences}});
  }
  rows_sweep::Judged judged;
  rows_sweep::Launches launches(device, launcher, draw);
  constexpr reference::Fill kFills[] = {reference::Fill::normal, reference::Fill::uniform, reference::Fill::integer};
  const rows_sweep::Tensors in =
      reference::topk_inputs(run, draw.of(kFills), static_cast<std::uint64_t>(draw.pick(0, 1 << 30)));
  const rows_sweep::Tensors out = launches.run(sizes, {}, in, judged.problems);
  const reference::Comparison result = reference::check_topk(run, in, out);
  judged.problems.insert(judged.problems.end(), result.problems.begin(), result.problems.end());
  judged.sizes = launches.sizes();
  judged.rows = run.m;
  return judged;
}

/// Of one seed; the number of failures, or -1 for a case that is not asked for.
int one_case(const Settings& settings, std::uint64_t seed, Device* gpu, Jit& jit, std::int64_t& rows) {
  constexpr const char* kEmulated[] = {"sm_90a", "sm_100a", "sm_120a"};
  Draw draw(seed);
  const Topk problem = drawn_problem(draw, Arch::parse(settings.is_emulated ? kEmulated[seed % 3] : "sm_90a"));
  try {
    make_plan(problem);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) return -1;  // k and its order leave no room on sm_120
    throw;
  }
  if (!settings.only.empty() && planned_kernel(problem).find(settings.only) == std::string::npos) return -1;
  std::unique_ptr<Device> emulated;
  if (settings.is_emulated)
    emulated = std::make_unique<emulator::EmulatedDevice>(
        emulator::DeviceOptions{.arch = problem.arch.to_string(), .detects_races = true});
  Device& device = emulated ? *emulated : *gpu;
  const std::shared_ptr<Kernel> kernel = jit.kernel(problem);
  int failures = 0;
  for (int i = 0; i < settings.shapes; ++i) {
    const rows_sweep::Judged judged = judged_topk(problem, device, kernel->launcher(device), draw, settings);
    rows += judged.rows;
    if (judged.problems.empty()) continue;
    ++failures;
    fmt::print("FAIL --seed {} --cases 1: {}, {}\n  {}\n", seed, planned_kernel(problem), judged.sizes,
               fmt::join(judged.problems, "\n  "));
    std::fflush(stdout);
  }
  return failures;
}

int sweep(Settings settings, Device* gpu) {
  if (!settings.state.empty() && std::filesystem::exists(settings.state))
    settings.seed = std::stoull(read_text(settings.state));
  if (settings.is_emulated) settings.columns = 3000, settings.rows = 5;
  Jit jit(JitOptions::from_environment());
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t rows = 0;
  int failures = 0, cases = 0;
  std::uint64_t seed = settings.seed;
  for (; cases < settings.cases; ++seed) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > settings.seconds) break;
    const int found = one_case(settings, seed, gpu, jit, rows);
    if (found < 0) continue;
    ++cases;
    failures += found;
    if (!settings.state.empty()) write_file(settings.state, fmt::format("{}\n", seed + 1));
    if (failures > 20) throw Error(ErrorKind::device, "more than 20 failures: stopping");
  }
  fmt::print("{} cases, {} rows compared, {} failures, seeds {} to {}\n", cases, rows, failures, settings.seed,
             seed - 1);
  return failures;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  CLI::App app{"Random choices of rows' k largest on the GPU against sorting"};
  app.add_option("--cases", settings.cases, "drawn kernels");
  app.add_option("--shapes", settings.shapes, "launches of each with drawn sizes");
  CLI::Option* const seed = app.add_option("--seed", settings.seed, "of the first case");
  app.add_option("--state", settings.state, "file with the first seed, written with the next one")->excludes(seed);
  app.add_option("--seconds", settings.seconds, "no case is begun after that");
  app.add_option("--columns", settings.columns, "most columns");
  app.add_option("--rows", settings.rows, "most rows");
  app.add_option("--only", settings.only, "cases whose kernel's name has this");
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
    fmt::print(stderr, "topk_sweep: {}\n", error.what());
    for (const std::string& note : error.notes()) fmt::print(stderr, "  {}\n", note);
    return 5;
  }
}
