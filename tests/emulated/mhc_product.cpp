// mHC's product for every target, compiled to PTX by NVRTC and run in the emulator, against float64. Nothing here ran
// on Blackwell hardware.
#include "reference/mhc_product.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/block_scale_cases.h"
#include "tests/support/sample.h"

namespace tessera::mhc_product_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

/// One chunk of k for eight CTAs, chunks that they divide and do not, rows beside the end of a CTA's; none.
struct Shape {
  std::int64_t m, k;
};
constexpr Shape kShapes[] = {{1, 64}, {33, 1600}, {130, 576}, {70, 3200}, {0, 128}};

std::vector<std::string> problems_of(EmulatedDevice& device, const Launcher& launcher, const MhcProduct& problem,
                                     const Shape& shape, Fill fill, std::uint64_t seed) {
  reference::MhcProductRun run;
  run.n = problem.n;
  run.splits = problem.splits;
  run.m = shape.m;
  run.k = shape.k;
  const reference::Tensors inputs = reference::mhc_product_inputs(run, fill, seed);
  std::vector<std::string> problems;
  const reference::Tensors outputs =
      launch_once(device, launcher, {{"m", shape.m}, {"k", shape.k}}, {}, inputs, problems);
  const reference::Comparison result = reference::check_mhc_product(
      run, inputs.at("a").view(), inputs.at("b").view(), outputs.at("d").view(), outputs.at("sum_squares").view(), 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

void check(const MhcProduct& problem, Compiler& compiler) {
  CAPTURE(planned_kernel(problem));
  EmulatedDevice device{{.arch = problem.arch.to_string(), .detects_races = true}};
  const Launcher launcher(device, make_plan(problem).launch, compiler.compile(emit(make_plan(problem))));
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  std::uint64_t seed = 1;
  for (const Shape& shape : kShapes)
    for (const Fill fill : {Fill::normal, Fill::uniform}) {
      CAPTURE(shape.m);
      CAPTURE(shape.k);
      device.set_schedule(kSchedules[seed % 4], seed);
      for (const std::string& text : problems_of(device, launcher, problem, shape, fill, seed)) FAIL_CHECK(text);
      ++seed;
    }
}

}  // namespace

TEST_CASE("mhc_product: every target and division of warps, with and without splits") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check({}, *compiler);
  check({.arch = Arch::parse("sm_100a"), .splits = 3, .warps_m = 2, .warps_k = 4}, *compiler);
  check({.arch = Arch::parse("sm_120a"), .n = 8, .warps_m = 1, .warps_k = 4}, *compiler);
  check({.arch = Arch::parse("sm_103a"), .n = 40, .splits = 2, .warps_m = 2, .warps_k = 1, .ctas = 1}, *compiler);
  check({.arch = Arch::parse("sm_121a"), .warps_m = 4, .warps_k = 1, .ctas = 4}, *compiler);
  check({.splits = 2, .warps_m = 1, .warps_k = 8, .ctas = 2}, *compiler);
  check({.m = 8192, .k = 7168}, *compiler);
}

struct ProductFault {
  const char *from, *to;
  const char* cause;
};
constexpr ProductFault kFaults[] = {
    {"ptx::mma_m16n8k16<DType::bf16>(sums.d[of_m][tile], elements[of_m], second[0], second[1]);", ";",
     "b is taken as one bf16 number"},
    {"ptx::mma_m16n8k16<DType::bf16>(sums.d[of_m][tile], elements[of_m], first[0], first[1]);", ";",
     "the first bf16 number of b is left out"},
    {"sums.d[tile][of_n][2 * i],\n                              sums.d[tile][of_n][2 * i + 1]);",
     "sums.d[tile][of_n][2 * i + 1], sums.d[tile][of_n][2 * i]);", "neighbouring rows of b are exchanged"},
    {"(first + 16 * tile + 8 * i + group)", "(first + 16 * tile + 8 * (1 - i) + group)",
     "rows i and i + 8 of a are exchanged"},
    {"for (int r = 0; r < 4; ++r) add_squares", "for (int r = 0; r < (step < 2 ? 4 : 0); ++r) add_squares",
     "squares of the second 32 of each 64 columns are left out"},
    {"for (int r = 0; r < 4; ++r) add_squares(elements[tile][r],",
     "for (int r = 0; r < 8; ++r) add_squares(elements[tile][r % 4],", "squares are counted twice"},
    {"(lane / 16 ^ lane % 8) * 16", "lane / 16 * 16", nullptr},
    {"ptx::mbarrier_wait_parity(full, ring.parity);", "", nullptr},
    {"32 * half)", "32 * (1 - half))", nullptr},
    {"full, 0, 0, chunk * kPanels);", "full, 0, 0, chunk * kPanels + 1);", nullptr},
    {"sum_of<C.ctas, kRank", "sum_of<C.ctas / 2, kRank", nullptr},
    {"sum_of<C.warps_k, rows", "sum_of<C.warps_k / 2, rows", nullptr},
    {"  ring.advance(turn);", "", nullptr},
    {"ring.advance(C.warps_k);", "ring.advance();", nullptr},
    {"chunk += C.warps_k)", "chunk += 2 * C.warps_k)", nullptr},
    {"const long long split = blockIdx.y;", "const long long split = C.splits - 1 - blockIdx.y;", nullptr},
};

TEST_CASE("mhc_product: planted slips are seen, and named") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const std::string file = "mhc_product/kernel.cuh";
  const std::string right = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / file);
  std::uint64_t seed = 40;
  testing::Sample sample(2);
  for (const ProductFault& fault : kFaults) {
    ++seed;
    CAPTURE(std::string(fault.from));
    std::string text = right;
    const std::size_t at = text.find(fault.from);
    REQUIRE(at != std::string::npos);
    if (!sample.takes()) continue;
    text.replace(at, std::string_view(fault.from).size(), fault.to);
    const MhcProduct problem{.splits = 2, .warps_m = 2, .warps_k = 2, .ctas = 4};
    EmulatedDevice device({.arch = "sm_90a", .detects_races = true});
    const Plan plan = make_plan(problem);
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{file, text}})));
    std::string all;
    for (const std::string& one : problems_of(device, launcher, problem, {48, 2560}, Fill::normal, seed))
      all += one + "\n";
    CAPTURE(all);
    CHECK_FALSE(all.empty());
    if (fault.cause != nullptr)
      CHECK(all.find(std::string("likely cause: ") + fault.cause + " (gives") != std::string::npos);
  }
}

TEST_CASE("mhc_product: the check sees a part left out, and b as one bf16 number") {
  reference::MhcProductRun run;
  run.m = 3;
  run.k = 512;
  const reference::Tensors in = reference::mhc_product_inputs(run, Fill::normal, 4);
  reference::Tensor d(DType::f32, {run.m, run.n}), squares(DType::f32, {run.m});
  const auto passes = [&](std::int64_t columns, DType b_type) {
    for (std::int64_t i = 0; i < run.m; ++i) {
      double of_row = 0;
      for (std::int64_t c = 0; c < columns; ++c) of_row += in.at("a").at(i * run.k + c) * in.at("a").at(i * run.k + c);
      squares.set(i, of_row);
      for (std::int64_t j = 0; j < run.n; ++j) {
        double sum = 0;
        for (std::int64_t c = 0; c < columns; ++c)
          sum += in.at("a").at(i * run.k + c) *
                 reference::to_double(b_type, reference::from_double(b_type, in.at("b").at(j * run.k + c)));
        d.set(i * run.n + j, sum);
      }
    }
    return reference::check_mhc_product(run, in.at("a").view(), in.at("b").view(), d.view(), squares.view()).pass;
  };
  CHECK(passes(512, DType::f32));
  CHECK_FALSE(passes(448, DType::f32));
  CHECK_FALSE(passes(512, DType::bf16));
}

}  // namespace tessera::mhc_product_test
