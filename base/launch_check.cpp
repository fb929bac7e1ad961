// What a launch plan must satisfy to mean anything, whoever made it. The launcher relies on all of it: list lengths for
// its stack arrays, names that resolve, ranks that fit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>

#include "tessera/error.h"
#include "tessera/launch.h"

namespace tessera {

namespace {

constexpr std::int64_t kSaneSmemBytes = 1 << 20;  // far above any device's
constexpr int kMaxAlignment = 1 << 16;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::usage, fmt::format("launch.{}: {}", path, what));
}

void check_count(const char* path, std::size_t count, std::size_t max) {
  if (count > max) fail(path, fmt::format("has {} elements: at most {} are allowed", count, max));
}

bool is_identifier(const std::string& name, bool allow_upper) {
  const auto is_letter = [&](char c) {
    return (c >= 'a' && c <= 'z') || c == '_' || (allow_upper && c >= 'A' && c <= 'Z');
  };
  return !name.empty() && name.size() <= 256 && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

void check_name(const std::string& path, const std::string& name) {
  const bool is_function = name == "ceil_div" || name == "min" || name == "max";
  if (!is_identifier(name, false) || is_function)
    fail(path, fmt::format("\"{}\" must be a name: [a-z_][a-z0-9_]*, at most 256 characters, not ceil_div, min or max",
                           name));
}

template <class List>
void check_names(const char* list_name, const List& list) {
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("{}[{}].name", list_name, i);
    check_name(path, list[i].name);
    if (!seen.insert(list[i].name).second) fail(path, fmt::format("\"{}\" is declared twice", list[i].name));
  }
}

template <class List>
bool has_name(const List& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& item) { return item.name == name; });
}

/// Every name of the expression is one of the first `count` sizes.
void check_expression(const std::string& path, const Expression& expression, const LaunchPlan& plan,
                      std::size_t count) {
  const auto end = plan.sizes.begin() + static_cast<std::ptrdiff_t>(count);
  for (const std::string& name : expression.names()) {
    const bool is_earlier =
        std::any_of(plan.sizes.begin(), end, [&](const SizeSpec& size) { return size.name == name; });
    if (is_earlier) continue;
    const bool is_later = has_name(plan.sizes, name);
    fail(path, fmt::format("'{}' uses '{}', which {}", expression.text(), name,
                           is_later ? "is declared later: a default follows from earlier sizes" : "is not a size"));
  }
}

void check_expression(const std::string& path, const Expression& expression, const LaunchPlan& plan) {
  check_expression(path, expression, plan, plan.sizes.size());
}

template <class List>
void check_expressions(const std::string& path, const List& list, const LaunchPlan& plan) {
  for (std::size_t i = 0; i < list.size(); ++i) check_expression(fmt::format("{}[{}]", path, i), list[i], plan);
}

void check_alignment(const std::string& path, int alignment) {
  if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0)
    fail(path, fmt::format("{}: must be a power of two in 1..{}", alignment, kMaxAlignment));
}

void check_sizes(const LaunchPlan& plan) {
  check_count("sizes", plan.sizes.size(), kMaxSizes);
  check_names("sizes", plan.sizes);
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    const SizeSpec& size = plan.sizes[i];
    if (size.min > size.max)
      fail(fmt::format("sizes[{}].max", i), fmt::format("{}: must not be below min = {}", size.max, size.min));
    if (size.default_value) check_expression(fmt::format("sizes[{}].default", i), *size.default_value, plan, i);
  }
  check_count("scalars", plan.scalars.size(), kMaxScalars);
  check_names("scalars", plan.scalars);
  for (std::size_t i = 0; i < plan.scalars.size(); ++i)
    if (plan.scalars[i].default_value && !std::isfinite(*plan.scalars[i].default_value))
      fail(fmt::format("scalars[{}].default", i), "must be a finite number");
}

void check_buffers(const LaunchPlan& plan) {
  check_count("buffers", plan.buffers.size(), kMaxBuffers);
  check_names("buffers", plan.buffers);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferSpec& buffer = plan.buffers[i];
    const std::string path = fmt::format("buffers[{}]", i);
    if (buffer.name == "workspace") fail(path + ".name", "\"workspace\" is reserved");
    if (buffer.shape.empty() || buffer.shape.size() > kMaxBufferRank)
      fail(path + ".shape", fmt::format("has {} elements: must have 1..{}", buffer.shape.size(), kMaxBufferRank));
    if (buffer.strides.size() != buffer.shape.size())
      fail(path + ".strides", fmt::format("has {} elements: must have one for each of the {} of shape",
                                          buffer.strides.size(), buffer.shape.size()));
    check_expressions(path + ".shape", buffer.shape, plan);
    check_expressions(path + ".strides", buffer.strides, plan);
    check_alignment(path + ".alignment", buffer.alignment);
  }
}

void check_tensor_maps(const LaunchPlan& plan) {
  check_count("tensor_maps", plan.tensor_maps.size(), kMaxTensorMaps);
  check_names("tensor_maps", plan.tensor_maps);
  for (std::size_t i = 0; i < plan.tensor_maps.size(); ++i) {
    const TensorMapRecipe& recipe = plan.tensor_maps[i];
    const std::string path = fmt::format("tensor_maps[{}]", i);
    if (!has_name(plan.buffers, recipe.buffer))
      fail(path + ".buffer", fmt::format("\"{}\" is not a buffer", recipe.buffer));
    const std::size_t rank = recipe.dims.size();
    if (rank < 1 || rank > kMaxTensorMapRank)
      fail(path + ".dims", fmt::format("has {} elements: must have 1..{}", rank, kMaxTensorMapRank));
    const auto check_rank = [&](const char* key, std::size_t count, std::size_t wanted) {
      if (count != wanted)
        fail(fmt::format("{}.{}", path, key), fmt::format("has {} elements: rank {} needs {}", count, rank, wanted));
    };
    check_rank("strides_bytes", recipe.strides_bytes.size(), rank - 1);
    check_rank("box", recipe.box.size(), rank);
    check_rank("element_strides", recipe.element_strides.size(), rank);
    check_expressions(path + ".dims", recipe.dims, plan);
    check_expressions(path + ".strides_bytes", recipe.strides_bytes, plan);
  }
}

void check_parameter(const std::string& path, const KernelParameter& parameter, const LaunchPlan& plan) {
  if (!is_identifier(parameter.name, true)) fail(path + ".name", fmt::format("\"{}\" must be a name", parameter.name));
  const auto unknown = [&](const char* what) {
    fail(path + ".source", fmt::format("\"{}\" is not {}", parameter.source, what));
  };
  switch (parameter.kind) {
    case ParameterKind::i32:
    case ParameterKind::i64:
      check_expression(path + ".value", parameter.value, plan);
      return;
    case ParameterKind::pointer:
      check_expression(path + ".offset_bytes", parameter.offset_bytes, plan);
      if (parameter.source != "workspace" && !has_name(plan.buffers, parameter.source))
        unknown("a buffer, and not \"workspace\"");
      return;
    case ParameterKind::tensor_map:
      if (!has_name(plan.tensor_maps, parameter.source)) unknown("a tensor map");
      return;
    case ParameterKind::f32:
      if (!has_name(plan.scalars, parameter.source)) unknown("a scalar");
      return;
  }
}

void check_step(const std::string& path, const LaunchStep& step, const LaunchPlan& plan) {
  if (!is_identifier(step.entry, true))
    fail(path + ".entry", fmt::format("\"{}\" must be a kernel's name", step.entry));
  check_expressions(path + ".grid", step.grid, plan);
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint32_t extent = step.block[i];
    if (extent < 1 || extent > 1024)
      fail(fmt::format("{}.block[{}]", path, i), fmt::format("{}: must lie in 1..1024", extent));
    if (step.cluster[i] < 1 || step.cluster[i] > 16)
      fail(fmt::format("{}.cluster[{}]", path, i), fmt::format("{}: must lie in 1..16", step.cluster[i]));
    threads *= extent;
  }
  if (threads > 1024) fail(path + ".block", fmt::format("has {} threads: at most 1024 are allowed", threads));
  if (step.dynamic_smem_bytes < 0 || step.dynamic_smem_bytes > kSaneSmemBytes)
    fail(path + ".dynamic_smem_bytes", fmt::format("{}: must lie in 0..{}", step.dynamic_smem_bytes, kSaneSmemBytes));
  if (step.parameters.size() > kMaxParameters)
    fail(path + ".parameters",
         fmt::format("has {} elements: at most {} are allowed", step.parameters.size(), kMaxParameters));
  for (std::size_t i = 0; i < step.parameters.size(); ++i)
    check_parameter(fmt::format("{}.parameters[{}]", path, i), step.parameters[i], plan);
}

}  // namespace

void check_launch_plan(const LaunchPlan& plan) {
  check_sizes(plan);
  check_buffers(plan);
  check_count("domain", plan.domain.size(), kMaxDomainRules);
  for (std::size_t i = 0; i < plan.domain.size(); ++i) {
    check_expression(fmt::format("domain[{}].lhs", i), plan.domain[i].lhs, plan);
    check_expression(fmt::format("domain[{}].rhs", i), plan.domain[i].rhs, plan);
  }
  check_tensor_maps(plan);
  check_expression("workspace.bytes", plan.workspace.bytes, plan);
  check_alignment("workspace.alignment", plan.workspace.alignment);
  if (plan.steps.empty()) fail("steps", "must not be empty");
  check_count("steps", plan.steps.size(), kMaxSteps);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) check_step(fmt::format("steps[{}]", i), plan.steps[i], plan);
}

}  // namespace tessera
