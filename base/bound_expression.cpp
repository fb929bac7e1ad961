#include "base/bound_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/error.h"

namespace tessera {

BoundExpression::BoundExpression(const Expression& expression, std::span<const std::string> slot_names)
    : expression_(expression) {
  for (Expression::Instruction& instruction : expression_.code_) {
    if (instruction.opcode != Expression::Opcode::name) continue;
    const std::string& name = expression.names_[static_cast<std::size_t>(instruction.operand)];
    const auto found = std::find(slot_names.begin(), slot_names.end(), name);
    if (found == slot_names.end())
      throw Error(ErrorKind::usage,
                  fmt::format("plan: expression '{}' uses '{}', which is not a size", expression.text(), name));
    instruction.operand = found - slot_names.begin();
    slots_needed_ = std::max(slots_needed_, static_cast<std::size_t>(instruction.operand) + 1);
  }
  make_chain();
}

// The code of a chain: an operand, then pairs of operand and operation.
void BoundExpression::make_chain() {
  const std::vector<Expression::Instruction>& code = expression_.code_;
  const auto is_operand = [](const Expression::Instruction& i) {
    return i.opcode == Expression::Opcode::constant || i.opcode == Expression::Opcode::name;
  };
  const auto term = [](const Expression::Instruction& i, Expression::Opcode opcode) {
    const bool is_slot = i.opcode == Expression::Opcode::name;
    return Term{is_slot ? 0 : i.operand, is_slot ? static_cast<std::int32_t>(i.operand) : -1, opcode};
  };
  is_general_ = code.size() % 2 == 0 || code.size() > 1 + 2 * kMaxChain || !is_operand(code[0]);
  for (std::size_t i = 1; i + 1 < code.size() && !is_general_; i += 2) {
    const bool is_pair =
        is_operand(code[i]) && !is_operand(code[i + 1]) && code[i + 1].opcode != Expression::Opcode::negate;
    if (is_pair) chain_[chain_length_++] = term(code[i], code[i + 1].opcode);
    is_general_ = !is_pair;
  }
  if (!is_general_) first_ = term(code[0], Expression::Opcode::add);
}

}  // namespace tessera
