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

#include "reference/topk.h"
#include "tessera/jit.h"
#include "tests/gpu_sweep/drawn_cases.h"
#include "tests/gpu_sweep/exit_code.h"
#include "tests/support/rows_sweep.h"

namespace tessera {
namespace {

using rows_sweep::Draw;

struct Settings : gpu_sweep::DrawnCases {
  std::int64_t columns = 200000, rows = 40;
  std::string only;
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
  const gpu_sweep::CaseDevice on(settings, seed, gpu);
  Draw draw(seed);
  const Topk problem = drawn_problem(draw, on.arch());
  try {
    make_plan(problem);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) return -1;  // k and its order leave no room on sm_120
    throw;
  }
  if (!settings.only.empty() && planned_kernel(problem).find(settings.only) == std::string::npos) return -1;
  const std::shared_ptr<Kernel> kernel = jit.kernel(problem);
  int failures = 0;
  for (int i = 0; i < settings.shapes; ++i) {
    const rows_sweep::Judged judged = judged_topk(problem, on.device(), kernel->launcher(on.device()), draw, settings);
    rows += judged.rows;
    failures += gpu_sweep::is_right(judged, seed, planned_kernel(problem)) ? 0 : 1;
  }
  return failures;
}

int sweep(Settings settings, Device* gpu) {
  if (settings.is_emulated) settings.columns = 3000, settings.rows = 5;
  Jit jit(JitOptions::from_environment());
  std::int64_t rows = 0;
  const gpu_sweep::Walked walked =
      walk(settings, [&](std::uint64_t seed) { return one_case(settings, seed, gpu, jit, rows); });
  fmt::print("{} cases, {} rows compared, {} failures, seeds {} to {}\n", walked.cases, rows, walked.failures,
             walked.first, walked.last);
  return walked.failures;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  CLI::App app{"Random choices of rows' k largest on the GPU against sorting"};
  gpu_sweep::add_options(app, settings);
  app.add_option("--columns", settings.columns, "most columns");
  app.add_option("--rows", settings.rows, "most rows");
  app.add_option("--only", settings.only, "cases whose kernel's name has this");
  CLI11_PARSE(app, argc, argv);
  return gpu_sweep::exit_code("topk_sweep", [&] {
    return settings.is_emulated ? sweep(settings, nullptr)
                                : gpu_sweep::on_gpu([&](Device& gpu) { return sweep(settings, &gpu); });
  });
}
