// Cold code: may allocate and format.
#include "runtime/launcher_refusals.h"

#include <fmt/format.h>

#include <optional>

#include "base/bound_expression.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera {

namespace {

[[noreturn]] void usage(const LaunchPlan& plan, const std::string& message) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", plan.op, message));
}

std::string layout_text(const std::vector<ParameterLayout>& layouts) {
  std::string text;
  for (const ParameterLayout& layout : layouts) text += fmt::format("{}{}", text.empty() ? "" : ", ", layout.bytes);
  return text.empty() ? "none" : text;
}

/// What the relation asks for, with its bound: "at least 1".
std::string bound_text(Relation relation, std::int64_t rhs) {
  switch (relation) {
    case Relation::at_least:
      return fmt::format("at least {}", rhs);
    case Relation::at_most:
      return fmt::format("at most {}", rhs);
    case Relation::equal:
      return fmt::format("equal to {}", rhs);
    case Relation::multiple_of:
      return fmt::format("a multiple of {}", rhs);
  }
  return {};
}

}  // namespace

void refuse_foreign_code(const LaunchPlan& plan, const DeviceInfo& info) {
  const std::optional<Arch> target = parse_arch(plan.arch);
  if (!target)
    throw Error(ErrorKind::usage,
                fmt::format("launch.arch: \"{}\" is not of the form sm_90, sm_90a or sm_100f", plan.arch));
  if (runs_on(*target, info.compute_major, info.compute_minor)) return;
  const int major = target->compute_major();
  throw Error(ErrorKind::device,
              fmt::format("{}: code for {} runs on compute capability {}.{}{}; {} has {}.{}", plan.op, plan.arch, major,
                          target->compute_minor(),
                          target->suffix == 'a' ? " only" : fmt::format(" and later ones of {}.x", major), info.name,
                          info.compute_major, info.compute_minor));
}

void refuse_parameters(const LaunchStep& step, const std::vector<ParameterLayout>& found) {
  std::vector<ParameterLayout> planned;
  for (const KernelParameter& parameter : step.parameters) planned.push_back({0, parameter_bytes(parameter.kind)});
  throw Error(ErrorKind::device,
              fmt::format("kernel '{}': the plan's parameters have {} bytes, the code's have {}: plan and code do not "
                          "belong together",
                          step.entry, layout_text(planned), layout_text(found)));
}

void refuse_smem(const LaunchStep& step, std::int64_t bytes, const DeviceInfo& info) {
  throw Error(ErrorKind::device, fmt::format("kernel '{}' needs {} bytes of dynamic shared memory: {} allows {}",
                                             step.entry, bytes, info.name, info.max_dynamic_smem_bytes));
}

void refuse_count(const LaunchPlan& plan, std::string_view what, std::size_t found, std::size_t needed) {
  usage(plan, fmt::format("{} {} given: the plan has {}", found, what, needed));
}

void refuse_missing_size(const LaunchPlan& plan, const SizeSpec& spec) {
  usage(plan, fmt::format("size '{}' must be given: it has no default", spec.name));
}

void refuse_missing_scalar(const LaunchPlan& plan, const ScalarSpec& spec) {
  usage(plan, fmt::format("scalar '{}' must be given: it has no default", spec.name));
}

void refuse_scalar(const LaunchPlan& plan, const ScalarSpec& spec, double value) {
  usage(plan, fmt::format("scalar '{}' = {}: is passed as fp32, which ends at 3.4e38", spec.name, value));
}

void refuse_size(const LaunchPlan& plan, const SizeSpec& spec, std::int64_t value) {
  usage(plan, fmt::format("{} = {}: must lie in {}..{}", spec.name, value, spec.min, spec.max));
}

void refuse_domain(const LaunchPlan& plan, const DomainRule& rule, std::int64_t lhs, std::int64_t rhs) {
  usage(plan,
        fmt::format("{} = {}: must be {} ({})", rule.lhs.text(), lhs, bound_text(rule.relation, rhs), rule.message));
}

void refuse_overlap(const LaunchPlan& plan, const BufferSpec& spec, std::span<const std::int64_t> strides,
                    const StrideOverlap& overlap) {
  usage(plan, overlap_message(spec, strides, overlap));
}

void check_null_buffer(const LaunchPlan& plan, const BufferSpec& spec, std::span<const std::string> names,
                       std::span<const std::int64_t> sizes) {
  for (const Expression& extent : spec.shape)
    if (BoundExpression(extent, names).evaluate(sizes) == 0) return;
  usage(plan, fmt::format("buffer '{}' is null: it must be given", spec.name));
}

void refuse_alignment(const LaunchPlan& plan, std::string_view name, DevicePointer pointer, int alignment) {
  usage(plan, fmt::format("buffer '{}' at {:#x}: must be a multiple of {}; it is {} past one", name, pointer, alignment,
                          pointer % static_cast<DevicePointer>(alignment)));
}

void refuse_workspace(const LaunchPlan& plan, const LaunchArguments& arguments, std::int64_t bytes) {
  if (arguments.workspace == 0)
    usage(plan, fmt::format("workspace is null: these sizes need {} bytes (Launcher::workspace_bytes)", bytes));
  usage(plan, fmt::format("workspace has {} bytes: these sizes need {} (Launcher::workspace_bytes)",
                          arguments.workspace_bytes, bytes));
}

void refuse_grid(const LaunchPlan& plan, const LaunchStep& step, std::size_t dimension, std::int64_t value,
                 std::int64_t max) {
  usage(plan, fmt::format("kernel '{}': grid[{}] = '{}' is {}: must lie in 0..{}", step.entry, dimension,
                          step.grid[dimension].text(), value, max));
}

void refuse_cluster(const LaunchPlan& plan, const LaunchStep& step, std::size_t dimension, std::int64_t value) {
  usage(plan, fmt::format("kernel '{}': grid[{}] = '{}' is {}: must be a multiple of the cluster's {}", step.entry,
                          dimension, step.grid[dimension].text(), value, step.cluster[dimension]));
}

void refuse_i32(const LaunchPlan& plan, const KernelParameter& parameter, std::int64_t value) {
  usage(plan,
        fmt::format("parameter '{}' = '{}' is {}: must fit 32 bits", parameter.name, parameter.value.text(), value));
}

void refuse_tensor_map(const LaunchPlan& plan, const ResolvedTensorMap& map, std::string_view name,
                       TensorMapTarget target) {
  std::vector<std::string> notes;
  for (const TensorMapViolation& violation : broken_rules(map, name, target)) notes.push_back(violation.message);
  const std::string first = notes.empty() ? "breaks a rule" : notes.front();
  throw Error(ErrorKind::usage, fmt::format("{}: {}", plan.op, first), std::move(notes));
}

}  // namespace tessera
