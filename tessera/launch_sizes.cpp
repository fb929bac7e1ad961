#include "tessera/internal/launch_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/launch_json.h"
#include "base/shown.h"
#include "base/suggestion.h"
#include "generator/selectors.h"
#include "tessera/error.h"
#include "tessera/plan.h"

namespace tessera {

namespace {

std::string value_text(const Expression& expression, std::int64_t value) {
  return expression.is_constant() ? expression.text() : fmt::format("{} = {}", expression.text(), value);
}

}  // namespace

LaunchSizes::LaunchSizes(const LaunchPlan& plan) : rules_(plan) {
  for (const TensorMapRecipe& recipe : plan.tensor_maps) maps_.emplace_back(recipe, rules_.names());
}

bool LaunchSizes::is_known(const Expression& expression, const KnownSizes& sizes) const {
  return std::all_of(expression.names().begin(), expression.names().end(), [&](const std::string& name) {
    const std::size_t size = rules_.index_of(name);
    return size < sizes.is_known.size() && sizes.is_known[size];
  });
}

bool LaunchSizes::are_known(const std::vector<Expression>& expressions, const KnownSizes& sizes) const {
  return std::all_of(expressions.begin(), expressions.end(),
                     [&](const Expression& expression) { return is_known(expression, sizes); });
}

std::map<std::string, std::int64_t> LaunchSizes::by_name(const std::vector<std::int64_t>& sizes) const {
  std::map<std::string, std::int64_t> named;
  for (std::size_t i = 0; i < sizes.size(); ++i) named.emplace(rules_.names()[i], sizes[i]);
  return named;
}

void LaunchSizes::require_name(const std::string& name) const {
  const std::vector<std::string>& names = rules_.names();
  if (rules_.index_of(name) == names.size())
    throw Error(ErrorKind::usage, fmt::format("{} has no size {}: its sizes are {}{}", plan().op, shown(name),
                                              fmt::join(names, ", "), suggestion(name, {names.begin(), names.end()})));
}

KnownSizes LaunchSizes::known(const std::vector<GivenSize>& given) const {
  for (const GivenSize& size : given) require_name(size.name);
  const std::vector<std::string>& names = rules_.names();
  KnownSizes sizes{std::vector<std::int64_t>(names.size(), 0), std::vector<bool>(names.size(), true), {}};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == names[i]; });
    const std::optional<Expression>& default_value = plan().sizes[i].default_value;
    if (found != given.end()) {
      sizes.values[i] = found->value;
    } else if (default_value && is_known(*default_value, sizes)) {
      sizes.values[i] = rules_.default_of(i, sizes.values);
    } else if (names[i] == "num_sms") {
      sizes.values[i] = 1;
    } else {
      sizes.is_known[i] = false;
      if (!default_value) sizes.unknown.push_back(names[i]);  // a default is missing what it follows from
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
  for (std::size_t i = 0; i < sizes.values.size(); ++i) {
    const std::string& name = rules_.names()[i];
    const bool is_pitch = name.starts_with("ld") || name == "v_stride_dim";  // of a product; of K-major v
    if (!is_pitch || !sizes.is_known[i]) continue;
    std::int64_t value = sizes.values[i];
    for (const Relation relation : {Relation::at_least, Relation::multiple_of})
      for (std::size_t r = 0; r < plan().domain.size(); ++r) {
        const DomainRule& rule = plan().domain[r];
        if (rule.relation != relation || rule.lhs.text() != name || !is_known(rule.rhs, sizes)) continue;
        const std::int64_t bound = rules_.sides(r, sizes.values).rhs;
        value = relation == Relation::at_least ? std::max(value, bound) : round_up(value, bound);
      }
    if (value != sizes.values[i]) padded.push_back({name, value});
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
    if (const SizeSpec& size = plan().sizes[i]; sizes.is_known[i] && !rules_.is_in_range(i, values[i]))
      found.push_back(fmt::format("{} = {}: must be from {} to {}", size.name, values[i], size.min, size.max));
  if (!found.empty()) return found;
  for (std::size_t i = 0; i < plan().domain.size(); ++i) {
    const DomainRule& rule = plan().domain[i];
    if (!is_known(rule.lhs, sizes) || !is_known(rule.rhs, sizes)) continue;
    const SizeRules::Sides sides = rules_.sides(i, values);
    if (sides.holds) continue;
    // A bound that is a number stands in the message already.
    found.push_back(fmt::format("{}: {}{}", rule.message, value_text(rule.lhs, sides.lhs),
                                rule.rhs.is_constant() ? "" : ", " + value_text(rule.rhs, sides.rhs)));
  }
  find_overlaps(sizes, found);
  if (found.empty()) find_broken_maps(sizes, found);
  return found;
}

void LaunchSizes::find_overlaps(const KnownSizes& sizes, std::vector<std::string>& found) const {
  for (std::size_t i = 0; i < rules_.outputs().size(); ++i) {
    const BufferSpec& buffer = plan().buffers[rules_.outputs()[i]];
    if (buffer.strides.size() != buffer.shape.size()) continue;
    if (!are_known(buffer.shape, sizes) || !are_known(buffer.strides, sizes)) continue;
    if (const std::optional<SizeRules::Overlap> overlap = rules_.overlap(i, sizes.values))
      found.push_back(overlap_message(buffer, overlap->strides, overlap->places));
  }
}

void LaunchSizes::find_broken_maps(const KnownSizes& sizes, std::vector<std::string>& found) const {
  const TensorMapTarget target{.compute_major = Arch::parse(plan().arch).compute_major()};
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const TensorMapRecipe& recipe = plan().tensor_maps[i];
    if (!are_known(recipe.dims, sizes) || !are_known(recipe.strides_bytes, sizes)) continue;
    const ResolvedTensorMap resolved = maps_[i].resolve(sizes.values, 0);
    if (first_broken_rule(resolved, target) == TensorMapRule{}) continue;
    for (const TensorMapViolation& violation : broken_rules(resolved, maps_[i].name(), target))
      found.push_back(violation.message);
  }
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

const LaunchSizes& KernelSizes::of(const Problem& problem, const std::string& kernel) {
  if (const auto found = by_kernel_.find(kernel); found != by_kernel_.end()) return found->second->sizes;
  LaunchPlan launch = make_bare_plan(problem).launch;
  launch.scalars.clear();  // what no size depends on
  launch.buffers.clear();
  launch.steps.clear();
  launch.workspace = {};
  std::unique_ptr<Launch>& slot = by_plan_[to_json(launch).dump()];
  if (!slot) slot = std::make_unique<Launch>(std::move(launch));
  by_kernel_.emplace(kernel, slot.get());
  return slot->sizes;
}

}  // namespace tessera
