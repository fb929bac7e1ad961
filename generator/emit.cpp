// Sources of a planned kernel, as a bundle or as one file: what was generated with the plan, and the embedded templates
// that it includes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "generator/include_scan.h"
#include "tessera/plan.h"

namespace tessera {

namespace {

// Everything that NVRTC is told besides the architecture. --no-source-include: an #include is never looked for beside
// the program or in the working directory. -lineinfo names the program's virtual path, which is absolute for that
// reason: a relative one would bring the working directory into the code. -v: registers and spills of every kernel.
const std::vector<std::string>& compile_options() {
  static const std::vector<std::string> options{"--std=c++20", "-lineinfo", "--no-source-include",
                                                "--ptxas-options=-v"};
  return options;
}

/// The sources of a plan, and after its headers those that stand in for templates.
PlanSources sources_of(const Plan& plan, const std::vector<SourceFile>& template_overrides) {
  PlanSources sources = plan.sources(plan);
  for (std::vector<SourceFile>* headers : {&sources.headers, &sources.merge_headers})
    headers->insert(headers->end(), template_overrides.begin(), template_overrides.end());
  return sources;
}

constexpr std::string_view kEntry = "entry.cu", kMerge = "merge.cu";
std::string program_path(const Plan& plan, std::string_view unit) {
  return fmt::format("/tessera/{}/{}", plan.op, unit);
}

SourceBundle bundle_of(const Plan& plan, std::string_view unit, std::string text,
                       const std::vector<SourceFile>& headers) {
  SourceBundle bundle;
  bundle.program = program_path(plan, unit);
  bundle.text = std::move(text);
  bundle.headers = transitive_headers(bundle.program, bundle.text, headers);
  std::sort(bundle.headers.begin(), bundle.headers.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  bundle.arch = plan.arch.to_string();
  bundle.options = compile_options();
  for (const LaunchStep& step : plan.launch.steps)
    if (step.is_merge == (unit == kMerge)) bundle.entries.push_back(step.entry);
  return bundle;
}

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

/// common/piece.cuh as pieces have it, from 1 on; none of a kernel that is compiled whole.
std::vector<SourcePiece> pieces_of(const PlanSources& sources) {
  std::vector<SourcePiece> pieces;
  for (int i = 1; sources.pieces > 1 && i <= sources.pieces; ++i) {
    SourceFile header{
        "common/piece.cuh",
        fmt::format("// Joined as by version 1: raise it where runtime/*_join.cpp comes to give other code.\n"
                    "#pragma once\n\n"
                    "namespace tessera::common {{\n\n"
                    "inline constexpr int kPiece = {};\n\n"
                    "}}  // namespace tessera::common\n",
                    i)};
    pieces.push_back(
        {std::move(header), !sources.keeps_values.empty() && sources.keeps_values[static_cast<std::size_t>(i) - 1]});
  }
  return pieces;
}

}  // namespace

SourceBundle emit(const Plan& plan, const std::vector<SourceFile>& template_overrides) {
  PlanSources sources = sources_of(plan, template_overrides);
  SourceBundle bundle = bundle_of(plan, kEntry, std::move(sources.entry), sources.headers);
  // What stands before the roles runs in each piece that has it, which a kernel.cuh of somebody's own need not know.
  const bool is_own = std::any_of(template_overrides.begin(), template_overrides.end(), [](const SourceFile& file) {
    return file.path.ends_with("/kernel.cuh") || file.path.starts_with("common/piece");
  });
  if (!is_own) bundle.pieces = pieces_of(sources);
  bundle.is_changed = !template_overrides.empty();
  if (!sources.merge.empty())
    bundle.merge =
        std::make_shared<const SourceBundle>(bundle_of(plan, kMerge, std::move(sources.merge), sources.merge_headers));
  return bundle;
}

std::string emit_single_file(const Plan& plan, const std::vector<SourceFile>& template_overrides) {
  const PlanSources sources = sources_of(plan, template_overrides);
  std::string text = fmt::format("// nvcc -std=c++20 -arch={} -cubin -lineinfo -o {}.cubin {}.cu\n",
                                 plan.arch.to_string(), plan.kernel, plan.kernel);
  const auto part = [&](std::string_view name, std::string_view source) {
    text += fmt::format("\n// ---- {} {}\n\n", name, std::string(std::max<std::size_t>(4, 112 - name.size()), '-'));
    text += inlined(source);
  };
  std::set<std::string> written;
  const auto unit = [&](std::string_view name, const std::string& source, const std::vector<SourceFile>& headers) {
    for (const SourceFile& header : transitive_headers(program_path(plan, name), source, headers))
      if (written.insert(header.path).second) part(header.path, header.text);
    part(name, source);
  };
  unit(kEntry, sources.entry, sources.headers);
  if (!sources.merge.empty()) unit(kMerge, sources.merge, sources.merge_headers);
  return text;
}

}  // namespace tessera
