// The sizes of a launch and what they must keep: defaults, ranges, the domain, outputs that do not overlap themselves.
// Bound once, and evaluated here alone: for a launch on a device (runtime/), which stops at the first broken rule, and
// offline (cli/), where some sizes may be unknown and every broken rule is told. The words are theirs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bound_expression.h"
#include "base/stride_overlap.h"
#include "tessera/launch.h"

namespace tessera {

class SizeRules {
 public:
  /// Throws Error{usage} for an expression with a name that is no size. The plan must stay where it is.
  explicit SizeRules(const LaunchPlan& plan);

  const LaunchPlan& plan() const noexcept { return plan_; }
  /// The sizes' names in the plan's order, in which all values below stand.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// names().size() where there is none of this name.
  std::size_t index_of(std::string_view name) const noexcept;

  bool is_in_range(std::size_t size, std::int64_t value) const noexcept {
    return value >= plan_.sizes[size].min && value <= plan_.sizes[size].max;
  }
  /// Over the sizes that stand before it. Precondition: the plan has one. Throws Error{usage} on overflow.
  std::int64_t default_of(std::size_t size, std::span<const std::int64_t> values) const {
    return defaults_[size].evaluate(values);
  }

  struct Sides {
    std::int64_t lhs = 0, rhs = 0;
    bool holds = false;
  };
  /// A rule of the plan's domain. Throws Error{usage} on overflow.
  Sides sides(std::size_t rule, std::span<const std::int64_t> values) const;

  /// Indices of the buffers that a launch writes.
  std::span<const std::size_t> outputs() const noexcept { return outputs_; }
  struct Overlap {
    StrideOverlap places;
    std::vector<std::int64_t> strides;  ///< for overlap_message
  };
  /// Two elements of outputs()[output] that lie at one place; nothing where each has its own.
  std::optional<Overlap> overlap(std::size_t output, std::span<const std::int64_t> values) const;

  /// Any expression over the sizes. Throws Error{usage} for a name that is none, and on overflow.
  std::int64_t evaluate(const Expression& expression, std::span<const std::int64_t> values) const {
    return BoundExpression(expression, names_).evaluate(values);
  }

 private:
  struct Rule {
    BoundExpression lhs, rhs;
  };
  struct Strided {
    std::vector<BoundExpression> extents, strides;
  };
  const LaunchPlan& plan_;
  std::vector<std::string> names_;
  std::vector<BoundExpression> defaults_;  // unused where there is none
  std::vector<Rule> domain_;
  std::vector<std::size_t> outputs_;
  std::vector<Strided> strided_;  // of each output
};

}  // namespace tessera
