// Sizes as expressions: the small, versioned grammar in which a plan says how grids, extents and strides follow from
// the caller's sizes.
//
//   expression := term (('+' | '-') term)*
//   term       := factor ('*' factor)*
//   factor     := integer | name | '-' factor | '(' expression ')' | function '(' expression ',' expression ')'
//   function   := 'ceil_div' | 'min' | 'max'
//   integer    := '0' | [1-9][0-9]*
//   name       := [a-z_][a-z0-9_]*  (a function's name is not a name)
//
// Spaces and tabs may stand between tokens. Values are 64-bit signed; every step is checked: an overflow, or a ceil_div
// by a divisor below 1, is an Error{usage} that names the expression (already at parse where both operands are
// numbers: those are folded). ceil_div rounds toward plus infinity, so ceil_div(-7, 2) = -3. All operands are
// evaluated.
//
// An Expression is parsed once into postfix code, which needs a stack of at most kMaxExpressionDepth values: longer
// needs are refused by the parser, so evaluation has a stack of fixed size and allocates nothing. A BoundExpression has
// the names turned into slots of an array, so that the launch path does not look up names either. kExpressionVersion
// enters every plan: a reader refuses a newer grammar.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"

namespace tessera {

inline constexpr int kExpressionVersion = 1;
inline constexpr int kMaxExpressionDepth = 64;
inline constexpr int kMaxExpressionLength = 4096;

class Expression {
 public:
  /// The constant 0.
  Expression() : Expression(0) {}
  Expression(std::int64_t constant);  // NOLINT: a number is an expression
  /// Parses; throws Error{usage} with place and caret when the text is not of the grammar. At most kMaxExpressionDepth
  /// levels of parentheses, functions and signs, and kMaxExpressionLength characters.
  static Expression parse(std::string_view text);

  /// The text it was made from, without spaces and tabs at its ends (a constant: its decimal digits). Parsing it again
  /// gives an equal expression.
  const std::string& text() const noexcept { return text_; }
  /// The distinct names in order of first use.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// No names: the same value always.
  bool is_constant() const noexcept { return names_.empty(); }

  /// Value with names()[i] = values[i]. Throws Error{usage} on overflow. Precondition: values.size() == names().size().
  std::int64_t evaluate(std::span<const std::int64_t> values) const;

  /// Equal texts; "a+b" and "a + b" differ.
  friend bool operator==(const Expression& a, const Expression& b) { return a.text_ == b.text_; }

 private:
  friend class BoundExpression;
  friend class ExpressionParser;
  enum class Opcode : std::uint8_t { constant, name, add, subtract, multiply, negate, ceil_div, min, max };
  struct Instruction {
    Opcode opcode;
    std::int64_t operand;  // constant: the value; name: index into names_
  };
  static std::int64_t step(Opcode opcode, std::int64_t a, std::int64_t b, const std::string& text);
  std::int64_t run(std::span<const std::int64_t> values) const;

  std::string text_;
  std::vector<std::string> names_;
  std::vector<Instruction> code_;
};

/// An expression whose names are slots of one array that many expressions share (a launch's sizes, in the plan's
/// order).
class BoundExpression {
 public:
  BoundExpression() = default;
  /// Throws Error{usage} "plan: expression 'a + b' uses 'b', which is not a size" for a name that slot_names lacks.
  BoundExpression(const Expression& expression, std::span<const std::string> slot_names);
  /// Value under the given slots, as many as were bound. A constant or a lone name costs a branch or two. Throws
  /// Error{usage} on overflow.
  std::int64_t evaluate(std::span<const std::int64_t> slots) const {
    TESSERA_ASSERT(slots.size() >= slots_needed_, "fewer values than slots");
    if (slot_ >= 0) return slots[static_cast<std::size_t>(slot_)];
    return general_ ? expression_.run(slots) : constant_;
  }
  bool is_constant() const noexcept { return slot_ < 0 && !general_; }
  const std::string& text() const noexcept { return expression_.text(); }

 private:
  std::int64_t constant_ = 0;
  int slot_ = -1;                 // >= 0: the value is slots[slot_]
  bool general_ = false;          // neither constant nor a lone name: run the code
  std::size_t slots_needed_ = 0;  // the highest slot used, plus 1
  Expression expression_;         // with name operands rewritten to slots
};

}  // namespace tessera
