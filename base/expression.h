// Sizes as expressions: the small, versioned grammar in which a plan says how grids, extents and strides follow from
// the caller's sizes.
//
//   expression := term (('+' | '-') term)*
//   term       := factor ('*' factor)*
//   factor     := integer | name | '-' factor | '(' expression ')' | function '(' expression ',' expression ')'
//   function   := 'ceil_div' | 'min' | 'max'
//   name       := [a-z_][a-z0-9_]*  (a function's name is not a name)
//
// Values are 64-bit signed; every step is checked, an overflow or a ceil_div by a divisor below 1 is an Error{usage}
// that names the expression. An Expression is parsed once into postfix code; bind() turns its names into slots of an
// array, so that evaluation on the launch path neither hashes nor allocates. kExpressionVersion enters every plan: a
// reader refuses a newer grammar.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr int kExpressionVersion = 1;

class Expression {
 public:
  /// The constant 0.
  Expression() : Expression(0) {}
  Expression(std::int64_t constant);  // NOLINT: a number is an expression
  /// Parses; throws Error{usage} with place and caret when the text is not of the grammar. At most 64 levels deep and
  /// 4,096 characters.
  static Expression parse(std::string_view text);

  /// The text it was made from (a constant: its decimal digits). Parsing it again gives an equal expression.
  const std::string& text() const noexcept { return text_; }
  /// The distinct names in order of first use.
  const std::vector<std::string>& names() const noexcept { return names_; }
  bool is_constant() const noexcept { return names_.empty(); }

  /// Value with names()[i] = values[i]. Throws Error{usage} on overflow. Precondition: values.size() == names().size().
  std::int64_t evaluate(std::span<const std::int64_t> values) const;

  friend bool operator==(const Expression& a, const Expression& b) { return a.text_ == b.text_; }

 private:
  friend class BoundExpression;
  friend class ExpressionParser;
  enum class Opcode : std::uint8_t { constant, name, add, subtract, multiply, negate, ceil_div, min, max };
  struct Instruction {
    Opcode opcode;
    std::int64_t operand;  // constant: the value; name: index into names_
  };
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
  /// Value under the given slots. A constant or a lone name costs one branch. Throws Error{usage} on overflow.
  std::int64_t evaluate(std::span<const std::int64_t> slots) const;

 private:
  std::int64_t constant_ = 0;
  int slot_ = -1;          // >= 0: the value is slots[slot_]
  Expression expression_;  // with name operands rewritten to slots, when neither constant nor a lone name
  bool general_ = false;
};

}  // namespace tessera
