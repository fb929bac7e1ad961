#include "generator/plan_sources.h"

#include <utility>

namespace tessera {

namespace {

std::string parameter_type(const KernelParameter& parameter, const LaunchPlan& launch) {
  switch (parameter.kind) {
    case ParameterKind::tensor_map:
      return "const __grid_constant__ TensorMap ";
    case ParameterKind::i32:
      return "int ";
    case ParameterKind::i64:
      return "long long ";
    case ParameterKind::f32:
      return "float ";
    case ParameterKind::pointer:
      break;
  }
  for (const BufferSpec& buffer : launch.buffers)
    if (buffer.name == parameter.source && buffer.dtype == "f32") return "float* ";
  return "void* ";
}

/// One kernel of a plan: a step's parameters, and the body's call.
std::string entry_function(const LaunchStep& step, const LaunchPlan& launch, const std::string& bounds,
                           const std::string& call) {
  std::vector<std::string> parameters;
  for (const KernelParameter& parameter : step.parameters)
    parameters.push_back(parameter_type(parameter, launch) + parameter.name);
  return fmt::format("extern \"C\" __global__ void __launch_bounds__({})\n    {}(\n        {}) {{\n  {};\n}}\n", bounds,
                     step.entry, fmt::join(parameters, ",\n        "), call);
}

SourceFile config_value(std::string path, std::string_view kernel, std::string_view templates, std::string_view name,
                        const std::string& initialisers) {
  return {std::move(path), fmt::format("// Generated: the Config of {0}.\n"
                                       "#pragma once\n\n"
                                       "#include \"spec/{1}.h\"\n\n"
                                       "namespace tessera::{1} {{\n\n"
                                       "inline constexpr Config {3}{{\n{2}}};\n\n"
                                       "}}  // namespace tessera::{1}\n",
                                       kernel, templates, initialisers, name)};
}

}  // namespace

SourceFile config_header(std::string_view kernel, std::string_view templates, const std::string& initialisers) {
  return config_value("config.cuh", kernel, templates, "kConfig", initialisers);
}

std::string entry_source(const LaunchPlan& launch, std::string_view templates, const std::vector<SourceFile>& generated,
                         const std::string& bounds, const std::vector<std::string>& calls) {
  std::vector<std::string> names{"config.cuh", fmt::format("{}/kernel.cuh", templates)};
  for (const SourceFile& header : generated) names.push_back(header.path);
  std::string includes;
  for (const std::string& name : names) includes += fmt::format("#include \"{}\"\n", name);

  std::string text = fmt::format(
      "// Generated: the entry of {0}.\n"
      "// What its parameters mean and how it is launched: spec/{1}.h.\n"
      "{2}\n"
      "using tessera::{1}::kConfig;\n",
      launch.steps.back().is_merge ? launch.steps.front().entry : launch.steps.back().entry, templates, includes);
  if (!launch.tensor_maps.empty()) text += "using tessera::ptx::TensorMap;\n";
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (!launch.steps[i].is_merge) text += "\n" + entry_function(launch.steps[i], launch, bounds, calls[i]);
  return text;
}

void add_merge(const LaunchStep& step, const LaunchPlan& launch, std::string_view templates, const MergeCode& code,
               const std::string& call, PlanSources& sources) {
  sources.merge = fmt::format(
      "// Generated: the entry of {0}.\n"
      "#include \"merge_config.cuh\"\n"
      "#include \"{1}\"\n\n"
      "using tessera::{2}::kMergeConfig;\n\n{3}",
      step.entry, code.header, templates, entry_function(step, launch, std::string(code.bounds), call));
  sources.merge_headers.push_back(
      config_value("merge_config.cuh", step.entry, templates, "kMergeConfig", code.initialisers));
}

}  // namespace tessera
