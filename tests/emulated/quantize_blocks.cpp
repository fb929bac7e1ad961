// Rows to e4m3 with factors for blocks, for every family, compiled to PTX by NVRTC and run in the emulator: every bit
// is the reference's. Nothing here ran on Blackwell hardware. Share of the whole run: two seconds.
#include "reference/quantize_blocks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "reference/random.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/block_scale_cases.h"

namespace tessera::quantize_blocks_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

/// Whole blocks, parts of them, one row, nothing.
struct Shape {
  std::int64_t l, rows, k;
};
constexpr Shape kShapes[] = {{1, 128, 128}, {2, 131, 272}, {1, 1, 16}, {1, 0, 128}, {1, 5, 0}};

reference::Tensor rows_of(const QuantizeBlocks& problem, const Shape& shape, Fill fill, std::uint64_t seed) {
  reference::Tensor x(problem.dtype, {shape.l, shape.rows, shape.k});
  reference::fill(x, fill, seed, 0);
  // What no factor fits, and a block of small numbers.
  if (x.elements() > 2000) {
    x.set(3, std::nan(""));
    x.set(900, std::numeric_limits<double>::infinity());
    x.set(shape.rows * shape.k - 1, -std::numeric_limits<double>::infinity());
    for (std::int64_t i = 0; i < shape.rows; ++i) x.set(i * shape.k + 1, 1e-9 * static_cast<double>(i));
  }
  return x;
}

void check(const QuantizeBlocks& problem, Compiler& compiler) {
  CAPTURE(planned_kernel(problem));
  EmulatedDevice device{{.arch = problem.arch.to_string(), .detects_races = true}};
  const Launcher launcher(device, make_plan(problem).launch, compiler.compile(emit(make_plan(problem))));
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  std::uint64_t seed = 1;
  for (const Shape& shape : kShapes)
    for (const Fill fill : {Fill::normal, Fill::standard}) {
      CAPTURE(shape.rows);
      CAPTURE(shape.k);
      device.set_schedule(kSchedules[seed % 4], seed);
      reference::Tensors inputs;
      inputs.emplace("x", rows_of(problem, shape, fill, seed));
      std::vector<std::string> problems;
      const reference::Tensors outputs =
          launch_once(device, launcher, {{"l", shape.l}, {"rows", shape.rows}, {"k", shape.k}}, {}, inputs, problems);
      const reference::Comparison result =
          reference::check_quantize_blocks(inputs.at("x").view(), {problem.scale_block, problem.scale_values},
                                           outputs.at("values").view(), outputs.at("factors").view());
      problems.insert(problems.end(), result.problems.begin(), result.problems.end());
      for (const std::string& text : problems) FAIL_CHECK(text);
      ++seed;
    }
}

}  // namespace

TEST_CASE("quantize_blocks: every family, type, block and kind of factor") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check({}, *compiler);
  check({.scale_block = ScaleBlock::of_row, .scale_values = ScaleValues::pow2}, *compiler);
  check({.dtype = DType::f16, .scale_values = ScaleValues::pow2}, *compiler);
  check({.arch = Arch::parse("sm_100a"), .dtype = DType::f32}, *compiler);
  check({.arch = Arch::parse("sm_120a"), .dtype = DType::f32, .scale_block = ScaleBlock::of_row}, *compiler);
  check({.arch = Arch::parse("sm_103a"), .dtype = DType::f16, .scale_block = ScaleBlock::of_row}, *compiler);
}

}  // namespace tessera::quantize_blocks_test
