// What is generated for a planned kernel. It is thin: the Config as one value, the entry that passes it on, and the
// headers that exist for this Config only. The entry's parameters are written from the launch plan, so that the code
// and the contract can't disagree.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/words.h"
#include "tessera/plan.h"

namespace tessera {

/// config.cuh: the fields' initialisers as one value of the templates' Config.
SourceFile config_header(std::string_view kernel, std::string_view templates, const std::string& initialisers);

/// What an operator says of a merge, a kernel that others share: the template that its translation unit includes, its
/// launch bounds, and its own Config.
struct MergeCode {
  std::string_view header;
  std::string_view bounds;
  std::string initialisers;
};
/// Its translation unit and merge_config.cuh.
void add_merge(const LaunchStep& step, const LaunchPlan& launch, std::string_view templates, const MergeCode& code,
               const std::string& call, PlanSources& sources);
/// The translation unit: one entry for each step of the launch but a merge, whose body is that step's call.
std::string entry_source(const LaunchPlan& launch, std::string_view templates, const std::vector<SourceFile>& generated,
                         const std::string& bounds, const std::vector<std::string>& calls);

/// The folder and namespace of an operator's templates, and its spec header: its name, unless it says otherwise.
template <class Operator>
constexpr std::string_view templates_of() {
  if constexpr (requires { Operator::kTemplates; }) {
    return Operator::kTemplates;
  } else {
    return Operator::kName;
  }
}

template <class Value>
std::string initialiser(const Value& value) {
  if constexpr (std::is_array_v<Value>) {
    return fmt::format("{{{}}}", fmt::join(std::begin(value), std::end(value), ", "));
  } else if constexpr (requires { to_initialiser(value); }) {
    return to_initialiser(value);
  } else if constexpr (std::is_enum_v<Value>) {
    return std::string(to_enumerator(value));
  } else {
    return fmt::format("{}", value);
  }
}

/// Of all fields: facts that the Config has nested, and then its own.
template <class Operator>
std::string initialisers_of(const typename Operator::Config& config) {
  std::vector<std::string> facts;
  if constexpr (requires { config.facts; }) {
    const auto add = [&](std::string_view name, const auto& value) {
      facts.push_back(fmt::format(".{} = {}", name, initialiser(value)));
    };
    if constexpr (requires { Operator::kHasAccumulation; }) {
      visit_facts<Operator::kHasAccumulation>(config.facts, add);
    } else {
      visit_facts(config.facts, add);
    }
  }
  std::string text = facts.empty() ? "" : fmt::format("    .facts = {{{}}},\n", fmt::join(facts, ",\n              "));
  std::size_t nested = facts.size();  // which come first
  Operator::visit_fields(config, [&](std::string_view name, const auto& value) {
    if (nested > 0) {
      --nested;
    } else {
      text += fmt::format("    .{} = {},\n", name, initialiser(value));
    }
  });
  return text;
}

template <class Operator>
PlanSources sources_of(const typename Operator::Config& config, std::string_view kernel, const LaunchPlan& launch) {
  const std::string initialisers = initialisers_of<Operator>(config);
  // One call for each step, unless the operator knows of several.
  std::vector<std::string> calls;
  for (std::size_t i = 0; i < launch.steps.size(); ++i) {
    if constexpr (requires { Operator::call_of_step(config, i); }) {
      calls.push_back(Operator::call_of_step(config, i));
    } else {
      calls.push_back(Operator::call(config));
    }
  }
  PlanSources sources;
  sources.headers = Operator::generated_headers(config);
  sources.entry = entry_source(launch, templates_of<Operator>(), sources.headers, Operator::launch_bounds(), calls);
  sources.headers.push_back(config_header(kernel, templates_of<Operator>(), initialisers));
  if constexpr (requires { Operator::pieces(config); }) sources.pieces = Operator::pieces(config);
  if constexpr (requires { Operator::keeps_values(config, 1); }) {
    for (int i = 1; i <= sources.pieces; ++i) sources.keeps_values.push_back(Operator::keeps_values(config, i));
  }
  if constexpr (requires { Operator::merge_code(config); }) {
    for (std::size_t i = 0; i < launch.steps.size(); ++i)
      if (launch.steps[i].is_merge)
        add_merge(launch.steps[i], launch, templates_of<Operator>(), Operator::merge_code(config), calls[i], sources);
  }
  return sources;
}

}  // namespace tessera
