// Sources of a planned kernel. What is generated is thin: the Config as one value, the entry that passes it on, and the
// headers that exist for this Config only. The entry's parameters are written from the launch plan, so that the code
// and the contract can't disagree.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "generator/config_fields.h"
#include "generator/include_scan.h"
#include "generator/operators.h"
#include "generator/plan.h"
#include "generator/words.h"

namespace tessera {

namespace {

template <class Value>
std::string initializer(const Value& value) {
  if constexpr (std::is_array_v<Value>) {
    return fmt::format("{{{}}}", fmt::join(std::begin(value), std::end(value), ", "));
  } else if constexpr (std::is_enum_v<Value>) {
    return std::string(to_enumerator(value));
  } else {
    return fmt::format("{}", value);
  }
}

/// The folder and namespace of an operator's templates, and its spec header: its name, unless it says otherwise.
template <class Operator>
constexpr std::string_view templates_of() {
  if constexpr (requires { Operator::kTemplates; }) {
    return Operator::kTemplates;
  } else {
    return Operator::kName;
  }
}

template <class Config>
std::string config_header(const Plan& plan, std::string_view templates, const Config& config) {
  std::string fields;
  visit_fields(config, [&](std::string_view name, const auto& value) {
    fields += fmt::format("    .{} = {},\n", name, initializer(value));
  });
  return fmt::format(
      "// Generated: the Config of {0}.\n"
      "#pragma once\n\n"
      "#include \"spec/{1}.h\"\n\n"
      "namespace tessera::{1} {{\n\n"
      "inline constexpr Config kConfig{{\n{2}}};\n\n"
      "}}  // namespace tessera::{1}\n",
      plan.kernel, templates, fields);
}

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

/// The call of each step: one, unless the operator knows of several.
template <class Operator, class Config>
std::vector<std::string> calls_of(const Config& config, std::size_t steps) {
  std::vector<std::string> calls;
  for (std::size_t i = 0; i < steps; ++i) {
    if constexpr (requires { Operator::call_of_step(config, i); }) {
      calls.push_back(Operator::call_of_step(config, i));
    } else {
      calls.push_back(Operator::call(config));
    }
  }
  return calls;
}

std::string entry_source(const Plan& plan, std::string_view templates, const std::vector<SourceFile>& generated,
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
      plan.launch.steps.back().entry, templates, includes);
  if (!plan.launch.tensor_maps.empty()) text += "using tessera::ptx::TensorMap;\n";
  for (std::size_t i = 0; i < calls.size(); ++i)
    text += "\n" + entry_function(plan.launch.steps[i], plan.launch, bounds, calls[i]);
  return text;
}

/// The sources of a plan that are not embedded: the translation unit, the headers that no template provides, and after
/// them those that stand in for templates.
struct Generated {
  std::string entry;
  std::vector<SourceFile> headers;
};

Generated generate(const Plan& plan, const std::vector<SourceFile>& template_overrides) {
  return std::visit(
      [&](const auto& config) {
        using Operator = OperatorOfConfig<std::remove_cvref_t<decltype(config)>>;
        Generated generated;
        generated.headers = Operator::generated_headers(config);
        constexpr std::string_view kTemplates = templates_of<Operator>();
        generated.entry = entry_source(plan, kTemplates, generated.headers, Operator::launch_bounds(),
                                       calls_of<Operator>(config, plan.launch.steps.size()));
        generated.headers.push_back({"config.cuh", config_header(plan, kTemplates, config)});
        generated.headers.insert(generated.headers.end(), template_overrides.begin(), template_overrides.end());
        return generated;
      },
      plan.config);
}

// Everything that NVRTC is told besides the architecture. --no-source-include: an #include is never looked for beside
// the program or in the working directory. -lineinfo names the program's virtual path, which is absolute for that
// reason: a relative one would bring the working directory into the code. -v: registers and spills of every kernel.
const std::vector<std::string>& compile_options() {
  static const std::vector<std::string> options{"--std=c++20", "-lineinfo", "--no-source-include",
                                                "--ptxas-options=-v"};
  return options;
}

std::string program_path(const Plan& plan) { return fmt::format("/tessera/{}/entry.cu", plan.op); }

/// The text without #include "..." and #pragma once lines, and without blank lines at its ends.
std::string inlined(std::string_view text) {
  std::string body;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line == "#pragma once" || !included_names(line).empty()) continue;
    // What a removed line leaves is one blank line, not several.
    if (line.empty() && (body.empty() || body.ends_with("\n\n"))) continue;
    body += line;
    body += '\n';
  }
  while (body.ends_with("\n\n")) body.pop_back();
  return body;
}

}  // namespace

SourceBundle emit(const Plan& plan, const std::vector<SourceFile>& template_overrides) {
  Generated generated = generate(plan, template_overrides);
  SourceBundle bundle;
  bundle.program = program_path(plan);
  bundle.text = std::move(generated.entry);
  bundle.headers = transitive_headers(bundle.program, bundle.text, generated.headers);
  std::sort(bundle.headers.begin(), bundle.headers.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  bundle.arch = plan.arch.to_string();
  bundle.options = compile_options();
  for (const LaunchStep& step : plan.launch.steps) bundle.entries.push_back(step.entry);
  return bundle;
}

std::string emit_single_file(const Plan& plan, const std::vector<SourceFile>& template_overrides) {
  const Generated generated = generate(plan, template_overrides);
  std::string text = fmt::format("// nvcc -std=c++20 -arch={} -cubin -lineinfo -o {}.cubin {}.cu\n",
                                 plan.arch.to_string(), plan.kernel, plan.kernel);
  const auto part = [&](std::string_view name, std::string_view source) {
    text += fmt::format("\n// ---- {} {}\n\n", name, std::string(std::max<std::size_t>(4, 112 - name.size()), '-'));
    text += inlined(source);
  };
  for (const SourceFile& header : transitive_headers(program_path(plan), generated.entry, generated.headers))
    part(header.path, header.text);
  part("entry.cu", generated.entry);
  return text;
}

}  // namespace tessera
