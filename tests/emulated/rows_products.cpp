// mHC between two layers, from what a layer made to the next one's input in two launches, in the emulator for every
// target, against float64. Nothing here ran on Blackwell hardware.
#include <doctest/doctest.h>

#include "base/file.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/rows_cases.h"
#include "tests/support/sample.h"

namespace tessera::rows_products_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

Rows post(const char* arch, int columns, std::optional<int> rows_of_cta = {}, std::optional<int> threads = {}) {
  return {.arch = Arch::parse(arch),
          .columns = columns,
          .chain = parse_row_chain("mhc_post(product)"),
          .threads_of_row = threads,
          .rows_of_cta = rows_of_cta};
}

}  // namespace

TEST_CASE("rows: streams and their product, on every target") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 300;
  constexpr int kTogether = rows::kThreadsOfTile;  // all warps of a CTA on the same 16 rows
  for (const auto& [arch, columns, rows_of_cta, threads] :
       {std::tuple("sm_90a", 136, 16, 2), std::tuple("sm_100a", 320, 64, 2), std::tuple("sm_120a", 8, 32, 2),
        std::tuple("sm_103a", 128, 48, 2), std::tuple("sm_121a", 72, 64, 2), std::tuple("sm_90a", 264, 128, 2),
        std::tuple("sm_90a", 200, 16, kTogether), std::tuple("sm_120a", 128, 16, kTogether),
        std::tuple("sm_100a", 72, 16, kTogether)}) {
    CAPTURE(std::string(arch));
    CAPTURE(threads);
    const Rows problem = post(arch, columns, rows_of_cta, threads);
    EmulatedDevice device({.arch = arch, .detects_races = true});
    const Plan plan = make_plan(problem);
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan)));
    // Within a warp's rows, beside their end, and more than all CTAs have in a turn.
    for (const std::int64_t rows : {1, 0, 15, rows_of_cta == 16 ? 277 : 37}) {
      const Schedule schedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
      device.set_schedule(schedules[seed % 4], seed);
      const reference::RowsRun run = rows_run(problem, rows);
      for (const std::string& text :
           judge(device, launcher, run, rows_inputs(run, seed % 2 == 0 ? Fill::standard : Fill::uniform, seed)))
        FAIL_CHECK(text);
      ++seed;
    }
  }
}

TEST_CASE("rows: two launches from a layer's result to the next layer's quantised input") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr int kColumns = 320;
  constexpr std::int64_t kRows = 21, kParts = rows::parts_of_product(kColumns);
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"}) {
    CAPTURE(std::string(arch));
    EmulatedDevice device({.arch = arch, .detects_races = true});
    const Rows first = post(arch, kColumns);
    const Rows second{.arch = Arch::parse(arch),
                      .columns = kColumns,
                      .chain = parse_row_chain("mhc_pre(product)+rmsnorm+mxfp8+nvfp4")};
    const Launcher one(device, make_plan(first).launch, compiler->compile(emit(make_plan(first))));
    const Launcher two(device, make_plan(second).launch, compiler->compile(emit(make_plan(second))));
    const reference::RowsRun of_first = rows_run(first, kRows);
    reference::RowsRun of_second = rows_run(second, kRows);
    of_second.parts = kParts;
    std::vector<std::string> problems;
    const reference::Tensors made =
        launch_once(device, one, {{"rows", kRows}}, {}, rows_inputs(of_first, Fill::standard, 31), problems);
    for (const std::string& text : problems) FAIL_CHECK(text);
    reference::Tensors inputs = rows_inputs(of_second, Fill::standard, 32);
    inputs.at("x") = made.at("streams_out");
    inputs.at("product") = made.at("product");
    inputs.at("sum_squares") = made.at("sum_squares");
    for (const std::string& text : judge(device, two, of_second, inputs)) FAIL_CHECK(text);
  }
}

TEST_CASE("rows: parts of a product are added by a row's lanes, its warps and the CTAs that share it") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 350;
  for (const auto& [threads, ctas, parts] :
       {std::tuple(8, 1, 75), std::tuple(64, 1, 133), std::tuple(256, 1, 300), std::tuple(512, 2, 9)}) {
    CAPTURE(threads);
    const Rows problem{.columns = 1024,
                       .chain = parse_row_chain("gather+mhc_pre(product,iterations=3)+f32"),
                       .threads_of_row = threads,
                       .ctas_of_row = ctas};
    const Plan plan =
        make_plan(threads < 16 ? Rows{.columns = 256, .chain = problem.chain, .threads_of_row = threads} : problem);
    EmulatedDevice device({.arch = "sm_90a", .detects_races = true});
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan)));
    // Fewer rows than a CTA of mixes has, and more.
    for (const std::int64_t rows : {1, 0, 37}) {
      reference::RowsRun run = rows_run(plan.problem.as<Rows>(), rows);
      run.parts = parts;
      for (const std::string& text : judge(device, launcher, run, rows_inputs(run, Fill::standard, ++seed)))
        FAIL_CHECK(text);
    }
  }
}

namespace {

struct Slip {
  const char* file;
  const char *from, *to;
  const char* chain;
  const char* cause;
  Hint rows = kUnknownHint;
};
constexpr Slip kSlips[] = {
    {"rows/product.cuh", "ptx::mma_m16n8k16<C.dtype>(sums[tile], a, b.z, b.w);", "", "mhc_post(product)",
     "mix_weight is taken as one bf16 number"},
    {"rows/product.cuh", "const int lane = row % 8 * 4", "const int lane = (row % 8 ^ 1) * 4", "mhc_post(product)",
     "neighbouring rows of mix_weight are exchanged"},
    {"rows/product.cuh", "fmaf(comb[s][to],", "fmaf(comb[to][s],", "mhc_post(product)",
     "comb is taken by columns, not by rows"},
    {"rows/few_products.cuh", "ptx::mma_m16n8k16<C.dtype>(sums[tile], a, second[0], second[1]);", "",
     "mhc_post(product)", "mix_weight is taken as one bf16 number", 37},
    {"rows/few_products.cuh", "(8 * tile + group)", "(8 * tile + (group ^ 1))", "mhc_post(product)",
     "neighbouring rows of mix_weight are exchanged", 37},
    {"rows/product.cuh", "return step.parts;", "return step.parts - 1;", "mhc_pre(product)+f32",
     "the last part of product is left out"},
    {"rows/steps.cuh", "for (int i = 1; i < kIterations; ++i) {", "for (int i = 2; i < kIterations; ++i) {",
     "mhc_pre(product,iterations=2)+f32", "Sinkhorn ends an iteration early"},
};

}  // namespace

TEST_CASE("rows: planted slips of mHC's products are seen, and named") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 400;
  testing::Sample sample(2);
  for (const Slip& slip : kSlips) {
    ++seed;
    CAPTURE(std::string(slip.cause));
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / slip.file);
    const std::size_t at = text.find(slip.from);
    REQUIRE(at != std::string::npos);
    if (!sample.takes()) continue;
    text.replace(at, std::string_view(slip.from).size(), slip.to);
    const Rows problem{.columns = 256, .chain = parse_row_chain(slip.chain), .rows = slip.rows};
    const Plan plan = make_plan(problem);
    EmulatedDevice device({.arch = "sm_90a"});
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{slip.file, text}})));
    const reference::RowsRun run = rows_run(problem, 37);
    std::string all;
    for (const std::string& one : judge(device, launcher, run, rows_inputs(run, Fill::normal, seed))) all += one + "\n";
    CAPTURE(all);
    CHECK(all.find(std::string("likely cause: ") + slip.cause + " (explains") != std::string::npos);
  }
}

}  // namespace tessera::rows_products_test
