// The row of a planner: what is done alike for every operator and family, from choosing a Config to the finished Plan.
// A planner is a struct of static functions; see copy2d_operator.h.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "generator/candidates.h"
#include "generator/operator_type.h"
#include "generator/plan_sources.h"
#include "generator/words.h"

namespace tessera {

template <class Value>
std::string field_value(const Value& value) {
  if constexpr (std::is_array_v<Value>) {
    return extents_text(value, static_cast<int>(std::size(value)));
  } else if constexpr (requires { to_field_text(value); }) {
    return to_field_text(value);
  } else if constexpr (std::is_enum_v<Value>) {
    return std::string(to_word(value));
  } else {
    return fmt::format("{}", value);
  }
}

template <class Value>
ConfigField field_of(std::string_view name, const Value& value) {
  ConfigField field{std::string(name), field_value(value), {}};
  if constexpr (std::is_array_v<Value>) {
    field.typed = std::vector<int>(std::begin(value), std::end(value));
  } else if constexpr (std::is_same_v<Value, int> || std::is_same_v<Value, bool>) {
    field.typed = value;
  } else {
    field.typed = field.value;
  }
  return field;
}

/// "the default for head_dim 128; the best of 12 legal candidates; pinned: swizzle 64B"
template <class Operator>
std::string reason_of(const Problem& problem, const Choice<Operator>& choice) {
  const auto& facts = problem.as<typename Operator::Problem>();
  long long legal = 0;
  for (const Candidate<Operator>& candidate : choice.candidates) legal += candidate.verdict.ok() ? 1 : 0;
  std::string reason = Operator::merit(choice.candidates[choice.best].config, facts);
  reason += legal == 1 ? "; the only legal candidate" : fmt::format("; the best of {} legal candidates", legal);
  const auto list = [&](SelectorKind kind, std::string_view unset, std::string_view title) {
    std::vector<std::string> set;
    for (const Selector& selector : problem.type().fields()) {
      if (selector.kind == kind && selector.text(problem) != unset)
        set.push_back(fmt::format("{} {}", selector.key, selector.text(problem)));
    }
    if (!set.empty()) reason += fmt::format("; {}: {}", title, fmt::join(set, ", "));
  };
  list(SelectorKind::pin, "auto", "pinned");
  list(SelectorKind::hint, "unknown", "hints");
  return reason;
}

/// What follows from the Config that was chosen.
template <class Operator>
Plan with_config(const Problem& problem, const typename Operator::Config& config) {
  Plan plan;
  plan.op = Operator::kName;
  plan.arch = problem.as<typename Operator::Problem>().arch;
  plan.problem = problem;
  plan.kernel = Operator::kernel_name(plan.arch, config);
  Operator::visit_fields(
      config, [&](std::string_view name, const auto& value) { plan.fields.push_back(field_of(name, value)); });
  Operator::describe(config, plan);
  // As flags have it: a Config by mma.sync need not tell operands apart.
  for (ConfigField& field : plan.fields)
    if (field.name == "mma_kind") field.typed = field.value = plan.mma_kind;
  plan.sources = [config](const Plan& of) { return sources_of<Operator>(config, of.kernel, of.launch); };
  return plan;
}

template <class Operator>
Plan plan_of(const Problem& problem) {
  const Choice<Operator> choice = choose<Operator>(problem.as<typename Operator::Problem>());
  const Candidate<Operator>& best = choice.candidates[choice.best];
  Plan plan = with_config<Operator>(problem, best.config);
  plan.reason = reason_of<Operator>(plan.problem, choice);
  if constexpr (requires { Operator::costs(best.config, problem.as<typename Operator::Problem>()); })
    plan.costs = Operator::costs(best.config, problem.as<typename Operator::Problem>());
  for (std::size_t i = 0; i < choice.candidates.size(); ++i)
    if (i != choice.best) plan.rejected.push_back(rejection(choice.candidates[i], best.score));
  return plan;
}

template <class Operator>
Plan bare_plan_of(const Problem& problem) {
  return with_config<Operator>(problem, best_config<Operator>(problem.as<typename Operator::Problem>()));
}

template <class Operator>
std::string planned_kernel_of(const Problem& problem) {
  const auto& facts = problem.as<typename Operator::Problem>();
  return Operator::kernel_name(facts.arch, best_config<Operator>(facts));
}

/// See generator/tuning.h. Pins have the names of the Config's fields, unless the operator names them itself.
template <class Operator>
std::vector<Problem> pinned_candidates_of(const Problem& problem) {
  const auto& facts = problem.as<typename Operator::Problem>();
  const Choice<Operator> choice = choose<Operator>(facts);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < choice.candidates.size(); ++i)
    if (choice.candidates[i].verdict.ok()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (a == choice.best || b == choice.best) return a == choice.best && b != choice.best;
    return choice.candidates[a].score > choice.candidates[b].score;
  });
  std::vector<Problem> pinned;
  for (const std::size_t i : order) {
    const Candidate<Operator>& candidate = choice.candidates[i];
    Problem one = problem;
    const auto pin = [&](std::string_view key, const auto& value) {
      for (const Selector& field : problem.type().fields())
        if (field.kind == SelectorKind::pin && field.key == key) set_field(one, key, field_value(value));
    };
    if constexpr (requires { Operator::visit_pins(candidate.config, pin); }) {
      Operator::visit_pins(candidate.config, pin);
    } else {
      Operator::visit_fields(candidate.config, pin);
    }
    // A candidate that differs in what no pin names cannot be asked for.
    if (planned_kernel_of<Operator>(one) != Operator::kernel_name(facts.arch, candidate.config)) continue;
    pinned.push_back(std::move(one));
  }
  return pinned;
}

/// "_fact_value" of each fact that is not as usual and that no other part of a kernel's name (`named`) says, so that no
/// two kernels share theirs.
template <class Facts, std::size_t kCount>
std::string other_facts_name(const Facts& facts, const std::string_view (&named)[kCount]) {
  const auto visit = [](const Facts& of, auto&& each) {
    if constexpr (std::is_same_v<Facts, ProductFacts>) {
      visit_facts<true>(of, each);
    } else {
      visit_facts(of, each);
    }
  };
  std::vector<std::string> usual;
  visit(Facts{}, [&](std::string_view, const auto& value) { usual.push_back(field_value(value)); });
  std::string name;
  std::size_t i = 0;
  visit(facts, [&](std::string_view fact, const auto& value) {
    const std::string text = field_value(value);
    const bool is_named = std::find(std::begin(named), std::end(named), fact) != std::end(named);
    if (!is_named && text != usual[i]) name += fmt::format("_{}_{}", fact, text);
    ++i;
  });
  return name;
}

/// Targets that a family has kernels for; the words complete "there is one for".
struct Targets {
  std::string_view words;
  bool (*has)(Arch target) noexcept;
};
inline constexpr Targets kWgmmaTargets{"sm_90a", [](Arch t) noexcept { return has_family(t, MmaFamily::wgmma); }};
inline constexpr Targets kTcgen05Targets{"sm_100 and sm_103 with suffix a or f",
                                         [](Arch t) noexcept { return has_family(t, MmaFamily::tcgen05); }};
/// Those that have nothing else. On the others what is asked for by name comes to such a family too, to be made or
/// refused.
inline constexpr Targets kMmaTargets{"sm_120 and sm_121 with suffix a or f",
                                     [](Arch t) noexcept { return !loads_on(t).empty(); }};
inline constexpr Targets kAllTargets{"sm_90a, and for sm_100, sm_103, sm_120 and sm_121 with suffix a or f",
                                     [](Arch t) noexcept { return !loads_on(t).empty(); }};
/// Help of the field `arch` of operators whose families have all targets together.
inline constexpr std::string_view kArchHelp = "target: sm_90a, or sm_100, sm_103, sm_120, sm_121 with a or f";

/// A family for some of an operator's problems says which: Operator::serves.
template <class Operator>
constexpr auto serves_of() -> bool (*)(const Problem&) {
  if constexpr (requires(const typename Operator::Problem& facts) { Operator::serves(facts); }) {
    return [](const Problem& problem) { return Operator::serves(problem.as<typename Operator::Problem>()); };
  } else {
    return nullptr;
  }
}

template <class Operator>
constexpr FamilyRow family_row(std::string_view name, const Targets& targets) {
  return {.name = name,
          .targets = targets.words,
          .has_target = targets.has,
          .serves = serves_of<Operator>(),
          .plan = plan_of<Operator>,
          .bare_plan = bare_plan_of<Operator>,
          .planned_kernel = planned_kernel_of<Operator>,
          .pinned_candidates = pinned_candidates_of<Operator>};
}

}  // namespace tessera
