// What is done with every Plan, whichever family made it.
#include "tessera/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/default_arithmetic.h"
#include "generator/operator_type.h"
#include "generator/tuning.h"

namespace tessera {

namespace {

const ConfigField* find_field(const Plan& plan, std::string_view name) noexcept {
  const auto found = std::find_if(plan.fields.begin(), plan.fields.end(),
                                  [&](const ConfigField& field) { return field.name == name; });
  return found == plan.fields.end() ? nullptr : &*found;
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
  const DefaultArithmetic arithmetic;
  const FamilyRow& family = family_of(problem);
  Plan plan = family.plan(problem);
  plan.family = family.name;
  return plan;
}

Plan make_bare_plan(const Problem& problem) {
  const DefaultArithmetic arithmetic;
  const FamilyRow& family = family_of(problem);
  Plan plan = family.bare_plan(problem);
  plan.family = family.name;
  return plan;
}

std::string planned_kernel(const Problem& problem) {
  const DefaultArithmetic arithmetic;
  return family_of(problem).planned_kernel(problem);
}

std::vector<Problem> pinned_candidates(const Problem& problem) {
  const DefaultArithmetic arithmetic;
  return family_of(problem).pinned_candidates(problem);
}

}  // namespace tessera
