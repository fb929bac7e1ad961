// Running a block-scaled operator's plan on a device and judging it, for the emulator's and the GPU's tests.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "base/bound_expression.h"
#include "reference/block_scale_run.h"
#include "reference/number.h"
#include "reference/poison.h"
#include "tessera/device.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"

namespace tessera {

/// Sizes by name; those that are left out have defaults.
using NamedSizes = std::map<std::string, std::int64_t>;

/// One launch with fresh memory: outputs poisoned, guards around each buffer (the emulator has its own: what lies
/// around an allocation is nobody's). The findings' messages and overwritten guards go into problems.
inline reference::Tensors launch_once(Device& device, const Launcher& launcher, const NamedSizes& named,
                                      const std::vector<double>& scalars, const reference::Tensors& inputs,
                                      std::vector<std::string>& problems) {
  const LaunchPlan& plan = launcher.plan();
  std::vector<std::int64_t> sizes;
  for (const SizeSpec& size : plan.sizes)
    sizes.push_back(named.count(size.name) != 0 ? named.at(size.name) : kUseDefault);
  LaunchArguments arguments;
  arguments.sizes = sizes;
  const std::vector<std::int64_t> values = launcher.resolve_sizes(arguments);
  std::vector<std::string> names;
  for (const SizeSpec& size : plan.sizes) names.push_back(size.name);
  reference::Tensors outputs;
  std::vector<DevicePointer> bases, pointers;
  const std::size_t guard_bytes = device.info().is_emulated ? 0 : reference::kGuardBytes;
  for (const BufferSpec& spec : plan.buffers) {
    std::vector<std::int64_t> shape;
    for (const Expression& extent : spec.shape) shape.push_back(BoundExpression(extent, names).evaluate(values));
    reference::Tensor tensor(*reference::dtype_from_name(spec.dtype), shape);
    const std::size_t bytes = tensor.bytes.size();
    bases.push_back(device.allocate(bytes + 2 * guard_bytes));
    pointers.push_back(bases.back() + guard_bytes);
    device.set_bytes(bases.back(), reference::kPoisonByte, bytes + 2 * guard_bytes);
    if (spec.role == BufferRole::output) {
      outputs.emplace(spec.name, std::move(tensor));
    } else {
      REQUIRE(inputs.at(spec.name).bytes.size() == bytes);
      device.copy_to_device(pointers.back(), inputs.at(spec.name).bytes.data(), bytes);
      if (spec.role == BufferRole::in_out) outputs.emplace(spec.name, std::move(tensor));
    }
  }
  arguments.scalars = scalars;
  arguments.buffers = pointers;
  arguments.workspace_bytes = launcher.workspace_bytes(arguments);
  if (arguments.workspace_bytes > 0) {
    arguments.workspace = device.allocate(static_cast<std::size_t>(arguments.workspace_bytes));
    device.set_bytes(arguments.workspace, reference::kPoisonByte, static_cast<std::size_t>(arguments.workspace_bytes));
  }
  launcher.launch({}, arguments);
  for (const Finding& finding : device.synchronize()) problems.push_back(finding.message);
  std::vector<std::byte> guard(guard_bytes);
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const BufferSpec& spec = plan.buffers[i];
    const auto output = outputs.find(spec.name);
    const std::size_t bytes = output == outputs.end() ? inputs.at(spec.name).bytes.size() : output->second.bytes.size();
    for (const bool is_before : {true, false}) {
      if (guard.empty()) break;
      device.copy_to_host(guard.data(), is_before ? bases[i] : pointers[i] + bytes, guard.size());
      const std::string problem = reference::guard_problem(spec.name, is_before ? "before" : "after", guard);
      if (!problem.empty()) problems.push_back(problem);
    }
    if (output != outputs.end()) device.copy_to_host(output->second.bytes.data(), pointers[i], bytes);
    device.free(bases[i]);
  }
  if (arguments.workspace != 0) device.free(arguments.workspace);
  return outputs;
}

/// A Problem, its sizes and what the reference needs to know of it.
struct BlockScaleCase {
  Problem problem;
  reference::BlockRun run;
};

inline Problem problem_of_run(const char* op, Arch arch, const reference::BlockRun& r) {
  const std::string_view name = op;
  if (name == "quantize")
    return Quantize{.arch = arch,
                    .dtype = r.dtype,
                    .format = r.format,
                    .scale_form = r.form,
                    .scale_rounding = r.rounding,
                    .global_scale = r.global_scale};
  if (name == "dequantize")
    return Dequantize{
        .arch = arch, .dtype = r.dtype, .format = r.format, .scale_form = r.form, .global_scale = r.global_scale};
  if (name == "convert_scales") return ConvertScales{.arch = arch, .to = r.form};
  return Gemv{.arch = arch,
              .dtype = r.dtype,
              .format = r.format,
              .b_format = r.b_format,
              .scale_form = r.form,
              .l = r.l,
              .m = r.rows,
              .k = r.k};
}

/// Launches and compares; what is wrong, or nothing.
inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const char* op,
                                      const reference::BlockRun& run, reference::Range range) {
  const std::string_view name = op;
  std::vector<std::string> problems;
  reference::Comparison result;
  if (name == "gemv") {
    constexpr double kAlpha = 0.5;
    const reference::Tensors inputs = reference::gemv_inputs(run, range);
    const reference::Tensors outputs =
        launch_once(device, launcher, {{"l", run.l}, {"m", run.rows}, {"k", run.k}, {"b_rows", run.b_rows}}, {kAlpha},
                    inputs, problems);
    result = reference::check_gemv(run, inputs, outputs, kAlpha);
    if (result.rel_error > 3 * result.rel_bound && run.l * run.rows > 30)
      problems.push_back("relative error beyond what roundings explain");
  } else if (name == "convert_scales") {
    const reference::Tensors inputs = reference::convert_scales_inputs(run);
    result = reference::check_convert_scales(
        run, inputs,
        launch_once(device, launcher, {{"l", run.l}, {"rows", run.rows}, {"blocks", run.k}}, {}, inputs, problems));
  } else {
    const bool is_quantize = name == "quantize";
    const reference::Tensors inputs =
        is_quantize ? reference::quantize_inputs(run, range) : reference::dequantize_inputs(run, range);
    const reference::Tensors outputs =
        launch_once(device, launcher, {{"l", run.l}, {"rows", run.rows}, {"k", run.k}}, {}, inputs, problems);
    result = is_quantize ? reference::check_quantize(run, inputs, outputs)
                         : reference::check_dequantize(run, inputs, outputs);
  }
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

}  // namespace tessera
