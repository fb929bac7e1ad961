#include "cli/launch_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/relation.h"
#include "base/shown.h"
#include "base/stride_overlap.h"
#include "base/suggestion.h"
#include "generator/selectors.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

std::vector<std::string> names_of(const LaunchPlan& plan) {
  std::vector<std::string> names;
  for (const SizeSpec& size : plan.sizes) names.push_back(size.name);
  return names;
}

std::string value_text(const Expression& expression, std::int64_t value) {
  return expression.is_constant() ? expression.text() : fmt::format("{} = {}", expression.text(), value);
}

}  // namespace

LaunchSizes::LaunchSizes(const LaunchPlan& plan) : plan_(plan), names_(names_of(plan)) {
  for (const SizeSpec& size : plan.sizes) {
    defaults_.emplace_back();
    if (size.default_value) defaults_.back().emplace(*size.default_value, names_);
  }
  for (const DomainRule& rule : plan.domain)
    domain_.push_back({BoundExpression(rule.lhs, names_), BoundExpression(rule.rhs, names_)});
  for (const TensorMapRecipe& recipe : plan.tensor_maps) maps_.emplace_back(recipe, names_);
}

bool LaunchSizes::is_known(const Expression& expression, const KnownSizes& sizes) const {
  return std::all_of(expression.names().begin(), expression.names().end(), [&](const std::string& name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found != names_.end() && sizes.is_known[static_cast<std::size_t>(found - names_.begin())];
  });
}

std::map<std::string, std::int64_t> LaunchSizes::by_name(const std::vector<std::int64_t>& sizes) const {
  std::map<std::string, std::int64_t> named;
  for (std::size_t i = 0; i < names_.size(); ++i) named.emplace(names_[i], sizes[i]);
  return named;
}

void LaunchSizes::require_name(const std::string& name) const {
  if (std::find(names_.begin(), names_.end(), name) == names_.end())
    throw Error(ErrorKind::usage,
                fmt::format("{} has no size {}: its sizes are {}{}", plan_.op, shown(name), fmt::join(names_, ", "),
                            suggestion(name, {names_.begin(), names_.end()})));
}

KnownSizes LaunchSizes::known(const std::vector<GivenSize>& given) const {
  for (const GivenSize& size : given) require_name(size.name);
  KnownSizes sizes{std::vector<std::int64_t>(names_.size(), 0), std::vector<bool>(names_.size(), true), {}};
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto found =
        std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == names_[i]; });
    if (found != given.end()) {
      sizes.values[i] = found->value;
    } else if (defaults_[i] && is_known(*plan_.sizes[i].default_value, sizes)) {
      sizes.values[i] = defaults_[i]->evaluate(sizes.values);
    } else if (names_[i] == "num_sms") {
      sizes.values[i] = 1;
    } else {
      sizes.is_known[i] = false;
      if (!defaults_[i]) sizes.unknown.push_back(names_[i]);  // a default is missing what it follows from
    }
  }
  return sizes;
}

std::optional<std::vector<std::int64_t>> LaunchSizes::complete(const std::vector<GivenSize>& given) const {
  KnownSizes sizes = known(given);
  if (!sizes.unknown.empty()) return std::nullopt;
  return std::move(sizes.values);
}

std::vector<GivenSize> LaunchSizes::padded_pitches(const std::vector<GivenSize>& given) const {
  const KnownSizes sizes = known(given);
  std::vector<GivenSize> padded;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const bool is_pitch = names_[i].starts_with("ld") || names_[i] == "v_stride_dim";  // of a product; of K-major v
    if (!is_pitch || !sizes.is_known[i]) continue;
    std::int64_t value = sizes.values[i];
    for (const Relation relation : {Relation::at_least, Relation::multiple_of})
      for (std::size_t r = 0; r < domain_.size(); ++r) {
        const DomainRule& rule = plan_.domain[r];
        if (rule.relation != relation || rule.lhs.text() != names_[i] || !is_known(rule.rhs, sizes)) continue;
        const std::int64_t bound = domain_[r].rhs.evaluate(sizes.values);
        value = relation == Relation::at_least ? std::max(value, bound) : round_up(value, bound);
      }
    if (value != sizes.values[i]) padded.push_back({names_[i], value});
  }
  return padded;
}

std::vector<std::string> LaunchSizes::problems(const std::vector<std::int64_t>& sizes) const {
  return problems(KnownSizes{sizes, std::vector<bool>(sizes.size(), true), {}});
}

std::vector<std::string> LaunchSizes::problems(const KnownSizes& sizes) const {
  std::vector<std::string> found;
  const std::vector<std::int64_t>& values = sizes.values;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (sizes.is_known[i] && (values[i] < plan_.sizes[i].min || values[i] > plan_.sizes[i].max))
      found.push_back(
          fmt::format("{} = {}: must be from {} to {}", names_[i], values[i], plan_.sizes[i].min, plan_.sizes[i].max));
  if (!found.empty()) return found;
  for (std::size_t i = 0; i < domain_.size(); ++i) {
    const DomainRule& rule = plan_.domain[i];
    if (!is_known(rule.lhs, sizes) || !is_known(rule.rhs, sizes)) continue;
    const std::int64_t lhs = domain_[i].lhs.evaluate(values), rhs = domain_[i].rhs.evaluate(values);
    if (holds(lhs, rule.relation, rhs)) continue;
    // A bound that is a number stands in the message already.
    found.push_back(fmt::format("{}: {}{}", rule.message, value_text(rule.lhs, lhs),
                                rule.rhs.is_constant() ? "" : ", " + value_text(rule.rhs, rhs)));
  }
  for (const BufferSpec& buffer : plan_.buffers) {
    if (std::string problem = overlap_problem(buffer, sizes); !problem.empty()) found.push_back(std::move(problem));
  }
  if (!found.empty()) return found;
  const TensorMapTarget target{.compute_major = Arch::parse(plan_.arch).compute_major()};
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const TensorMapRecipe& recipe = plan_.tensor_maps[i];
    const auto knows = [&](const Expression& expression) { return is_known(expression, sizes); };
    if (!std::all_of(recipe.dims.begin(), recipe.dims.end(), knows) ||
        !std::all_of(recipe.strides_bytes.begin(), recipe.strides_bytes.end(), knows))
      continue;
    const ResolvedTensorMap resolved = maps_[i].resolve(values, 0);
    if (first_broken_rule(resolved, target) == TensorMapRule{}) continue;
    for (const TensorMapViolation& violation : broken_rules(resolved, maps_[i].name(), target))
      found.push_back(violation.message);
  }
  return found;
}

std::string LaunchSizes::overlap_problem(const BufferSpec& buffer, const KnownSizes& sizes) const {
  if (buffer.role == BufferRole::input || buffer.strides.size() != buffer.shape.size()) return "";
  std::vector<std::int64_t> extents, strides;
  for (std::size_t i = 0; i < buffer.shape.size(); ++i) {
    if (!is_known(buffer.shape[i], sizes) || !is_known(buffer.strides[i], sizes)) return "";
    extents.push_back(evaluate(buffer.shape[i], sizes.values));
    strides.push_back(evaluate(buffer.strides[i], sizes.values));
  }
  const std::optional<StrideOverlap> overlap = find_overlap(extents, strides);
  return overlap ? overlap_message(buffer, strides, *overlap) : "";
}

std::int64_t LaunchSizes::evaluate(const Expression& expression, const std::vector<std::int64_t>& sizes) const {
  return BoundExpression(expression, names_).evaluate(sizes);
}

std::vector<ResolvedTensorMap> LaunchSizes::resolve(const std::vector<std::int64_t>& sizes) const {
  std::vector<ResolvedTensorMap> resolved;
  for (const BoundTensorMap& map : maps_) resolved.push_back(map.resolve(sizes, 0));
  return resolved;
}

std::vector<GivenSize> with_sizes(std::vector<GivenSize> given, const std::vector<GivenSize>& others) {
  for (const GivenSize& size : others) {
    const auto same = std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == size.name; });
    if (same != given.end()) {
      same->value = size.value;
    } else {
      given.push_back(size);
    }
  }
  return given;
}

std::vector<GivenSize> expected_sizes(const Problem& problem) {
  std::vector<GivenSize> given;
  for (const Selector& selector : selectors(operator_name(problem))) {
    if (selector.kind != SelectorKind::hint) continue;
    const std::string text = selector.text(problem);
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc()) given.push_back({std::string(selector.key), value});
  }
  return given;
}

}  // namespace tessera::cli
