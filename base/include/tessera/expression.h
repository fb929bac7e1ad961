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
// needs are refused by the parser, so evaluation has a stack of fixed size and allocates nothing. kExpressionVersion
// enters every plan: a reader refuses a newer grammar.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  /// value = a opcode b; false when that does not fit 64 bits or is not defined.
  static bool try_step(Opcode opcode, std::int64_t a, std::int64_t b, std::int64_t& value) noexcept {
    switch (opcode) {
      case Opcode::add:
        return !__builtin_add_overflow(a, b, &value);
      case Opcode::subtract:
        return !__builtin_sub_overflow(a, b, &value);
      case Opcode::multiply:
        return !__builtin_mul_overflow(a, b, &value);
      case Opcode::negate:
        return !__builtin_sub_overflow(std::int64_t{0}, b, &value);
      case Opcode::ceil_div:
        if (b < 1) return false;
        // Shapes are small as a rule, and a 32-bit division costs a fraction of a 64-bit one.
        if (a >= 0 && ((a | b) >> 31) == 0) {
          const auto narrow_a = static_cast<std::uint32_t>(a), narrow_b = static_cast<std::uint32_t>(b);
          value = (narrow_a + narrow_b - 1) / narrow_b;
          return true;
        }
        value = a / b + (a % b > 0 ? 1 : 0);
        return true;
      case Opcode::min:
        value = a < b ? a : b;
        return true;
      case Opcode::max:
        value = a > b ? a : b;
        return true;
      case Opcode::constant:
      case Opcode::name:
        break;
    }
    return false;
  }
  static std::int64_t step(Opcode opcode, std::int64_t a, std::int64_t b, const std::string& text);
  std::int64_t run(std::span<const std::int64_t> values) const;

  std::string text_;
  std::vector<std::string> names_;
  std::vector<Instruction> code_;
};

}  // namespace tessera
