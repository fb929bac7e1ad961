// Random indexers on the GPU against float64: heads, dimensions, forms, pages, families, ranges, strides; each launched
// twice over poison, whose bytes must agree and stay where nothing is to be written. Case number N is that of seed N.
//
//   indexer_sweep [--cases N] [--shapes 3] [--seed S | --state FILE] [--seconds S] [--keys 20000] [--queries 200]
//                 [--emulate]
//
// Exit code 0: all pass; 1: a mismatch (printed with what repeats it); 77: no GPU here. --emulate: in the emulator, for
// three targets in turn, with few keys.
#include "tests/support/indexer_sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "tessera/jit.h"
#include "tests/gpu_sweep/drawn_cases.h"
#include "tests/gpu_sweep/exit_code.h"

namespace tessera {
namespace {

struct Settings : gpu_sweep::DrawnCases {
  std::int64_t keys = 20000, queries = 200;
};

/// Of one seed; the number of failures.
int one_case(const Settings& settings, std::uint64_t seed, Device* gpu, Jit& jit, std::int64_t& rows, double& worst) {
  const gpu_sweep::CaseDevice on(settings, seed, gpu);
  rows_sweep::Draw draw(seed);
  const Problem problem = indexer_sweep::drawn_problem(draw, on.arch());
  const std::shared_ptr<Kernel> kernel = jit.kernel(problem);
  int failures = 0;
  for (int i = 0; i < settings.shapes; ++i) {
    const rows_sweep::Judged judged = indexer_sweep::judged_case(
        kernel->plan(), on.device(), kernel->launcher(on.device()), draw, settings.keys, settings.queries);
    rows += judged.rows;
    worst = std::max(worst, judged.worst);
    failures += gpu_sweep::is_right(judged, seed, kernel->plan().kernel) ? 0 : 1;
  }
  return failures;
}

int sweep(const Settings& settings, Device* gpu) {
  Jit jit(JitOptions::from_environment());
  std::int64_t rows = 0;
  double worst = 0;
  const gpu_sweep::Walked walked =
      walk(settings, [&](std::uint64_t seed) { return one_case(settings, seed, gpu, jit, rows, worst); });
  fmt::print("{} cases, {} rows compared, {} failures, worst {:.2f} of what roundings explain, seeds {} to {}\n",
             walked.cases, rows, walked.failures, worst, walked.first, walked.last);
  return walked.failures;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  CLI::App app{"Random indexers on the GPU against float64"};
  gpu_sweep::add_options(app, settings);
  app.add_option("--keys", settings.keys, "most keys");
  app.add_option("--queries", settings.queries, "most queries");
  CLI11_PARSE(app, argc, argv);
  return gpu_sweep::exit_code("indexer_sweep", [&] {
    return settings.is_emulated ? sweep(settings, nullptr)
                                : gpu_sweep::on_gpu([&](Device& gpu) { return sweep(settings, &gpu); });
  });
}
