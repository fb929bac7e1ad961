#include "base/size_rules.h"

#include <algorithm>

#include "base/relation.h"

namespace tessera {

SizeRules::SizeRules(const LaunchPlan& plan) : plan_(plan) {
  for (const SizeSpec& size : plan.sizes) names_.push_back(size.name);
  for (const SizeSpec& size : plan.sizes)
    defaults_.push_back(size.default_value ? BoundExpression(*size.default_value, names_) : BoundExpression());
  for (const DomainRule& rule : plan.domain)
    domain_.push_back({BoundExpression(rule.lhs, names_), BoundExpression(rule.rhs, names_)});
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferSpec& spec = plan.buffers[i];
    if (spec.role == BufferRole::input) continue;
    outputs_.push_back(i);
    Strided& strided = strided_.emplace_back();
    for (const Expression& extent : spec.shape) strided.extents.emplace_back(extent, names_);
    for (const Expression& stride : spec.strides) strided.strides.emplace_back(stride, names_);
  }
}

std::size_t SizeRules::index_of(std::string_view name) const noexcept {
  return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

SizeRules::Sides SizeRules::sides(std::size_t rule, std::span<const std::int64_t> values) const {
  const std::int64_t lhs = domain_[rule].lhs.evaluate(values), rhs = domain_[rule].rhs.evaluate(values);
  return {lhs, rhs, holds(lhs, plan_.domain[rule].relation, rhs)};
}

std::optional<SizeRules::Overlap> SizeRules::overlap(std::size_t output, std::span<const std::int64_t> values) const {
  const Strided& strided = strided_[output];
  const std::size_t rank = std::min(strided.extents.size(), strided.strides.size());
  std::array<std::int64_t, kMaxBufferRank> extents{}, strides{};
  for (std::size_t i = 0; i < rank; ++i) {
    extents[i] = strided.extents[i].evaluate(values);
    strides[i] = strided.strides[i].evaluate(values);
  }
  const std::optional<StrideOverlap> found = find_overlap({extents.data(), rank}, {strides.data(), rank});
  if (!found) return std::nullopt;
  return Overlap{*found, {strides.data(), strides.data() + rank}};
}

}  // namespace tessera
