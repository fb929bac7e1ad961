// The merge of parts of attention for every target, compiled to PTX by NVRTC and run in the emulator, against float64.
// Nothing here ran on Blackwell hardware.
#include <doctest/doctest.h>

#include <limits>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/merge_cases.h"
#include "tests/support/sample.h"

namespace tessera::merge_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using reference::MergeSizes;
using testing::find_compiler;

/// Parts that rounds divide and do not, rows that stand together and do not; many parts of few rows; nothing.
constexpr MergeSizes kShapes[] = {
    {.parts = 2, .batch = 1, .heads_q = 3, .seqlen_q = 17}, {.parts = 5, .batch = 2, .heads_q = 2, .seqlen_q = 9},
    {.parts = 1, .batch = 3, .heads_q = 1, .seqlen_q = 1},  {.parts = 33, .batch = 1, .heads_q = 5, .seqlen_q = 1},
    {.parts = 0, .batch = 1, .heads_q = 2, .seqlen_q = 3},  {.parts = 3, .batch = 0, .heads_q = 2, .seqlen_q = 3}};

struct Target {
  EmulatedDevice device;
  Launcher launcher;
  Target(const Merge& problem, Compiler& compiler)
      : device{{.arch = problem.arch.to_string(), .detects_races = true}},
        launcher(device, make_plan(problem).launch, compiler.compile(emit(make_plan(problem)))) {}
};

void check(const Merge& problem, Compiler& compiler) {
  CAPTURE(planned_kernel(problem));
  Target target(problem, compiler);
  std::uint64_t seed = 1;
  for (const MergeSizes& shape : kShapes)
    for (const Fill fill : {Fill::standard, Fill::integer, Fill::uniform})
      for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
        CAPTURE(shape.parts);
        CAPTURE(shape.seqlen_q);
        CAPTURE(seed);
        target.device.set_schedule(schedule, seed);
        for (const std::string& text : judge(target.device, target.launcher, problem, shape, fill, seed))
          FAIL_CHECK(text);
        ++seed;
      }
}

}  // namespace

TEST_CASE("merge: every target, pair of types, length of rows, with and without sinks") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
  constexpr const char* kTargets[] = {"sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"};
  constexpr int kHeadDims[] = {128, 64, 72, 512, 16, 96, 1024}, kAtOnce[] = {4, 2, 8, 1};
  std::size_t turn = 0;
  testing::Sample sample(6);
  for (const DType dtype : kTypes)
    for (const DType o_dtype : kTypes)
      for (const Sink sink : {Sink::none, Sink::per_head}) {
        if (sample.takes())
          check({.arch = Arch::parse(kTargets[turn % 5]),
                 .head_dim_v = kHeadDims[turn % 7],
                 .dtype = dtype,
                 .o_dtype = o_dtype,
                 .sink = sink,
                 .at_once = kAtOnce[turn % 4]},
                *compiler);
        ++turn;
      }
}

TEST_CASE("merge: a NaN makes its element NaN, one in a logarithm its row, an infinite logarithm too") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Merge problem{.head_dim_v = 64, .dtype = DType::f32, .sink = Sink::per_head, .at_once = 2};
  Target target(problem, *compiler);
  const MergeSizes sizes{.parts = 5, .batch = 1, .heads_q = 2, .seqlen_q = 6, .head_dim_v = 64};
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (std::int64_t part = 0; part < sizes.parts; ++part) {
      reference::Tensors inputs = reference::merge_inputs(sizes, problem.dtype, true, Fill::normal, 7);
      inputs.at("lse_parts").set(part * 12 + 3, value);                         // head 0, query 3
      inputs.at("o_parts").set(((part * 6 + 1) * 2 + 1) * 64 + 5 * part, NAN);  // head 1, query 1
      for (const std::string& text : judge(target.device, target.launcher, sizes, inputs)) FAIL_CHECK(text);
    }
}

TEST_CASE("merge: a null sink and a null lse are none") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Merge problem{.head_dim_v = 64, .sink = Sink::per_head};
  Target target(problem, *compiler);
  const MergeSizes sizes{.parts = 3, .batch = 1, .heads_q = 2, .seqlen_q = 5, .head_dim_v = 64};
  const reference::Tensors inputs = reference::merge_inputs(sizes, problem.dtype, false, Fill::standard, 3);
  const auto upload = [&](const reference::Tensor& tensor) {
    const DevicePointer pointer = target.device.allocate(tensor.bytes.size());
    target.device.copy_to_device(pointer, tensor.bytes.data(), tensor.bytes.size());
    return pointer;
  };
  reference::Tensor o(DType::bf16, {1, 5, 2, 64});
  const DevicePointer to = target.device.allocate(o.bytes.size());
  target.device.poison(to, 0xFF, o.bytes.size());
  std::vector<std::int64_t> values(make_plan(problem).launch.sizes.size(), kUseDefault);
  values[0] = 3;
  values[2] = 2;
  values[3] = 5;
  const std::vector<DevicePointer> pointers{upload(inputs.at("o_parts")), upload(inputs.at("lse_parts")), to, 0, 0};
  LaunchArguments arguments;
  arguments.sizes = values;
  arguments.buffers = pointers;
  target.launcher.launch({}, arguments);
  for (const Finding& finding : target.device.synchronize()) FAIL_CHECK(finding.message);
  target.device.copy_to_host(o.bytes.data(), to, o.bytes.size());
  const reference::Comparison result =
      reference::check_merge({inputs.at("o_parts").view(), inputs.at("lse_parts").view()}, {o.view()});
  for (const std::string& text : result.problems) FAIL_CHECK(text);
}

}  // namespace tessera::merge_test
