// The choice of rows' k largest for every target, compiled to PTX by NVRTC and run in the emulator, against sorting;
// and slips planted in its templates. Nothing here ran on Blackwell hardware.
#include "reference/topk.h"

#include <doctest/doctest.h>

#include <cmath>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/block_scale_cases.h"
#include "tests/support/planted_text.h"
#include "tests/support/sample.h"

namespace tessera::topk_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

reference::TopkRun run_of(const Topk& problem, std::int64_t m, std::int64_t n) {
  reference::TopkRun run;
  run.dtype = problem.dtype;
  run.m = m;
  run.n = n;
  run.k = problem.k;
  run.ties = problem.ties;
  run.order = problem.order;
  run.range = problem.range;
  run.index_form = problem.index_form;
  run.values = problem.values;
  run.guesses = problem.guesses;
  if (problem.index_form == IndexForm::pages) {
    run.page_size = 48;
    run.max_pages = n / run.page_size;  // the last columns have no page
    run.sequences = m / 2 + 1;
  }
  return run;
}

std::vector<std::string> problems_of(Device& device, const Launcher& launcher, const reference::TopkRun& run,
                                     const reference::Tensors& inputs) {
  NamedSizes sizes{{"m", run.m}, {"n", run.n}};
  if (run.index_form == IndexForm::pages)
    sizes.insert({{"page_size", run.page_size}, {"max_pages", run.max_pages}, {"sequences", run.sequences}});
  std::vector<std::string> problems;
  const reference::Tensors outputs = launch_once(device, launcher, sizes, {}, inputs, problems);
  const reference::Comparison result = reference::check_topk(run, inputs, outputs, 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

struct Shape {
  std::int64_t m, n;
};

void check(const Topk& problem, Compiler& compiler, std::initializer_list<Shape> shapes, std::uint64_t seed,
           bool detects_races = true) {
  CAPTURE(planned_kernel(problem));
  EmulatedDevice device{{.arch = problem.arch.to_string(), .detects_races = detects_races}};
  const Launcher launcher(device, make_plan(problem).launch, compiler.compile(emit(make_plan(problem))));
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  for (const auto& [m, n] : shapes) {
    CAPTURE(m);
    CAPTURE(n);
    device.set_schedule(kSchedules[seed % 4], seed);
    const reference::TopkRun run = run_of(problem, m, n);
    const Fill fill = seed % 3 == 0 ? Fill::integer : Fill::normal;
    for (const std::string& text : problems_of(device, launcher, run, topk_inputs(run, fill, seed))) FAIL_CHECK(text);
    ++seed;
  }
}

/// One of each field that is not the default, every two of them together somewhere.
Topk covered(int row, int k, int threads, int ctas) {
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  constexpr const char* kTargets[] = {"sm_90a", "sm_100a", "sm_120a"};
  return {.arch = Arch::parse(kTargets[row % 3]),
          .dtype = kTypes[row / 3 % 3],
          .k = k,
          .ties = (row / 2 + row) % 2 == 0 ? Ties::smaller : Ties::larger,
          .order = row % 4 < 2 ? ResultOrder::index : ResultOrder::value,
          .range = static_cast<RowRange>((row + row / 3) % 3),
          .index_form = static_cast<IndexForm>((row + row / 9 + row / 2) % 3),
          .values = row % 5 < 2 ? WithValues::off : WithValues::on,
          .guesses = row % 7 < 4 ? WithGuesses::off : WithGuesses::on,
          .threads = threads,
          .ctas = ctas};
}

}  // namespace

TEST_CASE("topk: targets, types, ties, orders, ranges and forms of indices, a CTA and clusters of rows that fit") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr int kRows[] = {1, 2, 33, 100, 257};
  constexpr int kCtas[] = {1, 2, 4, 8};
  for (int row = 0; row < 18; ++row)
    check(covered(row, kRows[row % 5], 512, kCtas[(row + row / 4) % 4]), *compiler, {{9, 700 + 37 * row}},
          static_cast<std::uint64_t>(100 + row), row % 3 == 0);
}

TEST_CASE("topk: rows longer than shared memory has room for") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (int row = 0; row < 9; ++row) {
    Topk problem = covered(row, row % 2 == 0 ? 40 : 300, 512, row % 3 == 0 ? 1 : 2);
    check(problem, *compiler, {{row % 3 == 0 ? 3 : 2, (row % 3 == 0 ? 31000 : 56000) + 11 * row}},
          static_cast<std::uint64_t>(200 + row), row == 0);
  }
}

TEST_CASE("topk: no rows, no columns, fewer columns than k, most of k") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check({.k = 5}, *compiler, {{0, 100}, {3, 0}, {4, 1}, {4, 4}, {4, 5}, {4, 6}}, 300);
  check({.k = 2048, .order = ResultOrder::value, .values = WithValues::on, .threads = 1024, .ctas = 1}, *compiler,
        {{2, 2047}, {3, 4099}}, 310);
  check({.arch = Arch::parse("sm_120a"), .k = 2048, .range = RowRange::lengths, .ctas = 4}, *compiler, {{5, 4099}},
        320);
  check({.k = 2048, .threads = 1024, .ctas = 16}, *compiler, {{2, 5001}}, 330);
  check({.arch = Arch::parse("sm_103a"), .dtype = DType::bf16, .k = 64, .ties = Ties::larger, .threads = 1024},
        *compiler, {{9, 3001}}, 340);
}

struct TopkFault {
  const char* file;  ///< below templates/
  const char *from, *to;
  const char* cause;
  const char *from2 = nullptr, *to2 = nullptr;
};
constexpr TopkFault kFaults[] = {
    {"topk/cut.cuh",
     "number < cut.need :", "number >= cut.equals - cut.need :", "of equals those with the other index are taken",
     "min(number, cut.need) :", "max(number - (cut.equals - cut.need), 0) :"},
    {"topk/row.cuh",
     "x != x ? 0u :", "x != x ? 0xffffffffu >> (32 - key_bits(C)) :", "a NaN stands before every number"},
    {"topk/row.cuh", "x + 0.0f", "x", "-0 stands behind +0"},
    {"topk/write.cuh", "? static_cast<int>(ptx::ld_global_u32(p.row_sequences + i)) : i;", "? i : i;",
     "row i has the table of sequence i"},
    {"topk/write.cuh", "t.table + page)", "t.table + (page + 1 < t.max_pages ? page + 1 : page))", nullptr},
    {"topk/write.cuh", "ptx::st_global_u32(t.indices + place, ~0u);", "write<C>(t, place, 0);", nullptr},
    {"topk/row.cuh", "length = min(max(static_cast<int>(ptx::ld_global_u32(p.lengths + row)), 0), p.n - start);",
     "length = p.n - start;", "lengths are ignored"},
    {"topk/cut.cuh", "wanted - (before - at_limit), at_limit, 0", "wanted - (before - at_limit) - 1, at_limit, 0",
     nullptr},
    {"topk/scan.cuh", "lane_of_thread() >= distance", "lane_of_thread() > distance", nullptr},
};

TEST_CASE("topk: few rows already have k elements, one less and one more, all of them numbers") {
  for (const RowRange range : {RowRange::lengths, RowRange::starts}) {
    const reference::TopkRun run = run_of({.k = 48, .range = range}, 9, 500);
    const reference::Tensors inputs = topk_inputs(run, Fill::normal, 1);
    for (const std::int64_t length : {47, 48, 49}) {
      bool is_there = false;
      for (std::int64_t row = 0; row < run.m; ++row) {
        bool is_finite = true;
        for (std::int64_t j = 0; j < run.n; ++j) is_finite &= std::isfinite(inputs.at("scores").at(row * run.n + j));
        is_there |= is_finite && inputs.at("lengths").at(row) == static_cast<double>(length);
      }
      CAPTURE(length);
      CHECK(is_there);
    }
  }
}

TEST_CASE("topk: planted slips are seen, and named") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 400;
  testing::Sample sample(2);
  for (const TopkFault& fault : kFaults) {
    ++seed;
    CAPTURE(std::string(fault.from));
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / fault.file);
    testing::plant(text, fault.from, fault.to);
    if (fault.from2 != nullptr) testing::plant(text, fault.from2, fault.to2);
    if (!sample.takes()) continue;
    const Topk problem{.k = 48, .range = RowRange::lengths, .index_form = IndexForm::pages, .threads = 512, .ctas = 2};
    const Plan plan = make_plan(problem);
    EmulatedDevice device({.arch = "sm_90a"});
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{fault.file, text}})));
    const reference::TopkRun run = run_of(problem, 18, 500);
    std::string all;
    for (const std::string& one : problems_of(device, launcher, run, topk_inputs(run, Fill::normal, seed)))
      all += one + "\n";
    CAPTURE(all);
    CHECK_FALSE(all.empty());
    if (fault.cause != nullptr)
      CHECK(all.find(std::string("likely cause: ") + fault.cause + " (explains") != std::string::npos);
  }
}

}  // namespace tessera::topk_test
