// An expression whose names are turned into slots of an array, so that the launch path does not look up names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/assert.h"
#include "tessera/expression.h"

namespace tessera {

/// An expression whose names are slots of one array that many expressions share (a launch's sizes, in the plan's
/// order).
class BoundExpression {
 public:
  BoundExpression() = default;
  /// Throws Error{usage} "plan: expression 'a + b' uses 'b', which is not a size" for a name that slot_names lacks.
  BoundExpression(const Expression& expression, std::span<const std::string> slot_names);
  /// Value under the given slots, as many as were bound. A constant, a name, and up to kMaxChain operations from left
  /// to right on such ("max(rows, 1)", "batch * heads * 128") cost a few branches. Throws Error{usage} on overflow.
  std::int64_t evaluate(std::span<const std::int64_t> slots) const {
    TESSERA_ASSERT(slots.size() >= slots_needed_, "fewer values than slots");
    if (is_general_) return expression_.run(slots);
    std::int64_t value = value_of(first_, slots);
    for (std::size_t i = 0; i < chain_length_; ++i)
      if (!Expression::try_step(chain_[i].opcode, value, value_of(chain_[i], slots), value))
        return expression_.run(slots);  // which throws, with the operands
    return value;
  }
  bool is_constant() const noexcept { return first_.slot < 0 && chain_length_ == 0 && !is_general_; }
  const std::string& text() const noexcept { return expression_.text(); }

 private:
  static constexpr std::size_t kMaxChain = 3;
  struct Term {
    std::int64_t constant = 0;
    std::int32_t slot = -1;  // >= 0: the value is slots[slot], not the constant
    Expression::Opcode opcode = Expression::Opcode::add;
  };
  static std::int64_t value_of(const Term& term, std::span<const std::int64_t> slots) noexcept {
    return term.slot >= 0 ? slots[static_cast<std::size_t>(term.slot)] : term.constant;
  }
  void make_chain();

  Term first_;
  std::array<Term, kMaxChain> chain_;  // applied to first_ one after the other
  std::size_t chain_length_ = 0;
  bool is_general_ = false;       // no chain: run the code
  std::size_t slots_needed_ = 0;  // the highest slot used, plus 1
  Expression expression_;         // with name operands rewritten to slots
};

}  // namespace tessera
