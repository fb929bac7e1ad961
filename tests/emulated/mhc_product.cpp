// mHC's product for every target, compiled to PTX by NVRTC and run in the emulator, against float64. Nothing here ran
// on Blackwell hardware.
#include "reference/mhc_product.h"

#include <doctest/doctest.h>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/block_scale_cases.h"

namespace tessera {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;

std::unique_ptr<Compiler> find_compiler() {
  try {
    return make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return nullptr;
  }
}

/// One chunk of k for eight CTAs, chunks that they divide and do not, rows beside the end of a CTA's; none.
struct Shape {
  std::int64_t m, k;
};
constexpr Shape kShapes[] = {{1, 64}, {33, 1600}, {130, 576}, {0, 128}};

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
  check({.arch = Arch::parse("sm_120a"), .n = 8, .warps_m = 1, .warps_k = 7}, *compiler);
  check({.arch = Arch::parse("sm_103a"), .n = 40, .splits = 2, .warps_m = 2, .warps_k = 1, .ctas = 1}, *compiler);
  check({.arch = Arch::parse("sm_121a"), .warps_m = 8, .warps_k = 1, .ctas = 4}, *compiler);
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

}  // namespace tessera
