// What a caller asks for: the facts that compiled code depends on, optional pins of the choices that the planner would
// make, and optional hints.
//
// A field that is a fact changes the kernel. A pin (std::optional) fixes what the planner otherwise chooses; an illegal
// pin is refused with the rule that it breaks, never replaced. A hint (Hint) steers the choice only: every kernel is
// right on its whole declared domain. Problems are compared and hashed by all of it. The default Problem of an operator
// is a legal one.
//
// Each operator has a struct of its own (tessera/copy2d_problem.h is the smallest); a Problem holds one of any
// operator, also of one that this library does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "tessera/targets.h"

namespace tessera {

/// A size that the caller expects. 0 is a size like any other: a length may be 0.
using Hint = std::int64_t;
inline constexpr Hint kUnknownHint = -1;

/// What is known of an operator: generator/operator_type.h; and of a field of its Problem: generator/selectors.h.
struct OperatorType;
struct Selector;

/// Of an operator by the struct of its Problem; each operator specialises it.
template <class Facts>
const OperatorType& operator_type() noexcept;

/// The struct of an operator's Problem.
template <class Facts>
concept ProblemFacts = requires(const Facts& facts) {
  Facts::kOperator;
  facts.arch;
};

/// A value: copies share the struct until one of them is changed.
class Problem {
 public:
  /// None, until it is assigned.
  Problem() = default;
  template <ProblemFacts Facts>
  Problem(Facts facts) : type_(&operator_type<Facts>()), facts_(std::make_shared<Facts>(std::move(facts))) {}

  /// Precondition: not none.
  const OperatorType& type() const noexcept { return *type_; }

  /// Null for a Problem of another operator.
  template <ProblemFacts Facts>
  const Facts* get_if() const noexcept {
    return type_ == &operator_type<Facts>() ? static_cast<const Facts*>(facts_.get()) : nullptr;
  }
  /// Precondition: it is this operator's.
  template <ProblemFacts Facts>
  const Facts& as() const {
    require(operator_type<Facts>());
    return *static_cast<const Facts*>(facts_.get());
  }
  /// To change it: this Problem's own. Precondition: it is this operator's.
  template <ProblemFacts Facts>
  Facts& edit() {
    require(operator_type<Facts>());
    return *static_cast<Facts*>(own());
  }

  friend bool operator==(const Problem& a, const Problem& b) noexcept;
  friend struct ProblemHash;
  friend Arch arch_of(const Problem& problem) noexcept;

 private:
  void require(const OperatorType& type) const;
  void* own();

  const OperatorType* type_ = nullptr;
  std::shared_ptr<void> facts_;
};

/// "copy2d", "fmha", ...
std::string_view operator_name(const Problem& problem) noexcept;
Arch arch_of(const Problem& problem) noexcept;

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const noexcept;
};
/// The same of an operator's own struct.
std::size_t hash_of_facts(const OperatorType& type, const void* facts) noexcept;

}  // namespace tessera
