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

#include "generator/facts.h"
#include "tessera/jit.h"
#include "tests/gpu_sweep/drawn_cases.h"
#include "tests/gpu_sweep/exit_code.h"

namespace tessera {
namespace {

struct Settings : gpu_sweep::DrawnCases {
  int columns = 4096, rows = 300;
  std::string only;
};

std::string text_of(const Problem& problem) {
  if (operator_name(problem) != "rows") return planned_kernel(problem);
  const auto& rows = problem.as<Rows>();
  return fmt::format("rows columns={} dtype={} chain={}", rows.columns, static_cast<int>(rows.dtype),
                     to_text(rows.chain));
}

/// Of one seed; the number of failures, or -1 for a case that is not asked for.
int one_case(const Settings& settings, std::uint64_t seed, Device* gpu, Jit& jit, std::int64_t& rows, int& refused) {
  const gpu_sweep::CaseDevice on(settings, seed, gpu);
  rows_sweep::Draw draw(seed);
  const Problem problem = rows_sweep::drawn_problem(draw, on.arch(), settings.columns, refused);
  if (!settings.only.empty() && text_of(problem).find(settings.only) == std::string::npos) return -1;
  const std::shared_ptr<Kernel> kernel = jit.kernel(problem);
  int failures = 0;
  for (int i = 0; i < settings.shapes; ++i) {
    const rows_sweep::Judged judged =
        rows_sweep::judged_case(problem, on.device(), kernel->launcher(on.device()), draw, settings.rows);
    rows += judged.rows;
    failures += gpu_sweep::is_right(judged, seed, text_of(problem)) ? 0 : 1;
  }
  return failures;
}

int sweep(const Settings& settings, Device* gpu) {
  Jit jit(JitOptions::from_environment());
  std::int64_t rows = 0;
  int refused = 0;
  const gpu_sweep::Walked walked =
      walk(settings, [&](std::uint64_t seed) { return one_case(settings, seed, gpu, jit, rows, refused); });
  fmt::print("{} cases, {} rows compared, {} failures, {} chains refused, seeds {} to {}\n", walked.cases, rows,
             walked.failures, refused, walked.first, walked.last);
  return walked.failures;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  CLI::App app{"Random row operators on the GPU against float64"};
  gpu_sweep::add_options(app, settings);
  app.add_option("--columns", settings.columns, "most columns");
  app.add_option("--rows", settings.rows, "most rows");
  app.add_option("--only", settings.only, "cases whose text has this");
  CLI11_PARSE(app, argc, argv);
  return gpu_sweep::exit_code("rows_sweep", [&] {
    return settings.is_emulated ? sweep(settings, nullptr)
                                : gpu_sweep::on_gpu([&](Device& gpu) { return sweep(settings, &gpu); });
  });
}
