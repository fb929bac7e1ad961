// From the closed set of Problems to one generic planner: each operator's type is chosen here. Keys of the JSON keep
// one order, because the bytes of plan.json enter a cache key.
#include "generator/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "base/assert.h"
#include "base/error.h"
#include "generator/candidates.h"
#include "generator/config_fields.h"
#include "generator/operators.h"
#include "generator/plan_sources.h"
#include "generator/selectors.h"
#include "generator/tuning.h"
#include "generator/words.h"

namespace tessera {

namespace {

/// function(facts, Operator{}) with the operator that the target has for this Problem.
template <class Function>
auto with_operator(const Problem& problem, Function function) {
  return std::visit(
      [&](const auto& p) {
        using Facts = std::remove_cvref_t<decltype(p)>;
        if constexpr (requires { typename OperatorOfProblem<Facts, true>::type; }) {
          if (has_family(p.arch, MmaFamily::tcgen05)) return function(p, typename OperatorOfProblem<Facts, true>::type{});
        }
        return function(p, typename OperatorOfProblem<Facts, false>::type{});
      },
      problem);
}

template <class Value>
std::string field_value(const Value& value) {
  if constexpr (std::is_array_v<Value>) {
    return extents_text(value, static_cast<int>(std::size(value)));
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
  const auto& facts = std::get<typename Operator::Problem>(problem);
  long long legal = 0;
  for (const Candidate<Operator>& candidate : choice.candidates) legal += candidate.verdict.ok() ? 1 : 0;
  std::string reason = Operator::merit(choice.candidates[choice.best].config, facts);
  reason += legal == 1 ? "; the only legal candidate" : fmt::format("; the best of {} legal candidates", legal);
  const auto list = [&](SelectorKind kind, std::string_view unset, std::string_view title) {
    std::vector<std::string> set;
    for (const Selector& selector : selectors(Operator::kName)) {
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
Plan bare_plan_of(const typename Operator::Problem& problem, const typename Operator::Config& config) {
  Plan plan;
  plan.op = Operator::kName;
  plan.arch = problem.arch;
  plan.problem = problem;
  plan.kernel = Operator::kernel_name(problem.arch, config);
  visit_fields(config, [&](std::string_view name, const auto& value) { plan.fields.push_back(field_of(name, value)); });
  Operator::describe(config, plan);
  plan.sources = [config](const Plan& of) { return sources_of<Operator>(config, of.kernel, of.launch); };
  return plan;
}

template <class Operator>
Plan plan_of(const typename Operator::Problem& problem) {
  const Choice<Operator> choice = choose<Operator>(problem);
  const Candidate<Operator>& best = choice.candidates[choice.best];
  Plan plan = bare_plan_of<Operator>(problem, best.config);
  plan.reason = reason_of<Operator>(plan.problem, choice);
  for (std::size_t i = 0; i < choice.candidates.size(); ++i)
    if (i != choice.best) plan.rejected.push_back(rejection(choice.candidates[i], best.score));
  return plan;
}

const ConfigField* find_field(const Plan& plan, std::string_view name) noexcept {
  const auto found = std::find_if(plan.fields.begin(), plan.fields.end(),
                                  [&](const ConfigField& field) { return field.name == name; });
  return found == plan.fields.end() ? nullptr : &*found;
}

OrderedJson operands_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const OperandPlan& operand : plan.operands) {
    OrderedJson entry{{"name", operand.name},
                      {"dtype", operand.dtype},
                      {"tensor_map_type", operand.tensor_map_type},
                      {"swizzle", operand.swizzle},
                      {"use", operand.use}};
    if (!operand.scale_type.empty()) {
      entry["scale_type"] = operand.scale_type;
      entry["scale_block"] = operand.scale_block;
      entry["scale_form"] = operand.scale_form;
    }
    json.push_back(std::move(entry));
  }
  return json;
}

template <class Region>
OrderedJson with_phases(OrderedJson json, const Region& region) {
  if (region.slots > 1) json["slots"] = region.slots;
  for (const MemoryPhase& phase : region.phases)
    json["phases"].push_back({{"content", phase.content}, {"owner", phase.owner}, {"until", phase.until}});
  return json;
}

OrderedJson smem_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const SmemRegion& region : plan.smem)
    json.push_back(with_phases({{"name", region.name}, {"offset", region.offset}, {"bytes", region.bytes}}, region));
  return json;
}

OrderedJson tmem_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const TmemRegion& region : plan.tmem)
    json.push_back(with_phases({{"name", region.name},
                                {"first_column", region.first_column},
                                {"columns", region.columns},
                                {"first_lane", region.first_lane},
                                {"lanes", region.lanes}},
                               region));
  return json;
}

OrderedJson roles_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const RolePlan& role : plan.roles) {
    json.push_back(
        {{"name", role.name}, {"first_warp", role.first_warp}, {"warps", role.warps}, {"registers", role.registers}});
  }
  return json;
}

OrderedJson rejected_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const Rejection& rejection : plan.rejected) {
    json.push_back(
        {{"candidate", rejection.candidate}, {"reason", rejection.reason}, {"is_legal", rejection.is_legal}});
  }
  return json;
}

}  // namespace

bool Plan::has_field(std::string_view name) const noexcept { return find_field(*this, name) != nullptr; }

const std::string& Plan::field(std::string_view name) const {
  const ConfigField* const found = find_field(*this, name);
  TESSERA_ASSERT(found != nullptr, fmt::format("{} has no field {}", kernel, name));
  return found->value;
}

int Plan::number(std::string_view name) const {
  const ConfigField* const found = find_field(*this, name);
  const auto* const value = found == nullptr ? nullptr : std::get_if<int>(&found->typed);
  TESSERA_ASSERT(value != nullptr, fmt::format("{} has no number {}", kernel, name));
  return *value;
}

Plan make_plan(const Problem& problem) {
  return with_operator(problem, [](const auto& p, auto op) { return plan_of<decltype(op)>(p); });
}

Plan make_bare_plan(const Problem& problem) {
  return with_operator(problem, [](const auto& p, auto op) {
    using Operator = decltype(op);
    return bare_plan_of<Operator>(p, best_config<Operator>(p));
  });
}

std::string planned_kernel(const Problem& problem) {
  return with_operator(problem, [](const auto& p, auto op) {
    using Operator = decltype(op);
    return Operator::kernel_name(p.arch, best_config<Operator>(p));
  });
}

namespace {

/// The pin for a field of a Config: with swap_ab its m is the product's n (spec/gemm.h), and pins are of the product.
template <class Config>
std::string_view pin_of(const Config& config, std::string_view field) {
  if constexpr (std::is_same_v<Config, gemm::Config>) {
    if (!gemm::is_swapped(config)) return field;
    constexpr std::pair<std::string_view, std::string_view> kPairs[] = {{"tile_m", "tile_n"},
                                                                        {"cluster_m", "cluster_n"}};
    for (const auto& [m, n] : kPairs)
      if (field == m || field == n) return field == m ? n : m;
  }
  return field;
}

}  // namespace

std::vector<Problem> pinned_candidates(const Problem& problem) {
  return with_operator(problem, [&](const auto& facts, auto planner) {
    using Operator = decltype(planner);
    const Choice<Operator> choice = choose<Operator>(facts);
    std::vector<Problem> pinned;
    for (std::size_t i = 0; i < choice.candidates.size(); ++i) {
      const Candidate<Operator>& candidate = choice.candidates[i];
      if (!candidate.verdict.ok()) continue;
      Problem one = problem;
      const auto pin = [&](std::string_view key, const std::string& text) {
        for (const Selector& selector : selectors(Operator::kName))
          if (selector.kind == SelectorKind::pin && selector.key == key) set_field(one, key, text);
      };
      visit_fields(candidate.config, [&](std::string_view name, const auto& value) {
        if constexpr (std::is_array_v<std::remove_cvref_t<decltype(value)>>) {
          // A box is pinned by its first extents.
          pin("tile_inner", field_value(value[0]));
          pin("tile_outer", field_value(value[1]));
        } else {
          pin(pin_of(candidate.config, name), field_value(value));
        }
      });
      // A candidate that differs in what no pin names cannot be asked for.
      if (planned_kernel(one) != Operator::kernel_name(facts.arch, candidate.config)) continue;
      pinned.insert(i == choice.best ? pinned.begin() : pinned.end(), std::move(one));
    }
    return pinned;
  });
}

OrderedJson to_json(const Plan& plan, bool with_rejected) {
  OrderedJson config;
  for (const ConfigField& field : plan.fields)
    std::visit([&](const auto& value) { config[field.name] = value; }, field.typed);
  OrderedJson json{{"version", kPlanVersion},         {"op", plan.op},
                   {"arch", plan.arch.to_string()},   {"kernel", plan.kernel},
                   {"config", std::move(config)},     {"mma_kind", plan.mma_kind},
                   {"operands", operands_json(plan)}, {"smem", smem_json(plan)},
                   {"smem_bytes", plan.smem_bytes}};
  if (plan.tmem_columns > 0) {
    json["tmem"] = tmem_json(plan);
    json["tmem_columns"] = plan.tmem_columns;
  }
  json["entry_registers"] = plan.entry_registers;
  json["roles"] = roles_json(plan);
  if (with_rejected) {
    json["reason"] = plan.reason;
    json["rejected"] = rejected_json(plan);
  }
  json["launch"] = to_json(plan.launch);
  return json;
}

}  // namespace tessera
