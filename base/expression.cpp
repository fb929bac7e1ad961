// Parser (recursive descent, one method per grammar rule, emitting postfix code) and evaluator of the expression
// grammar.
#include "tessera/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/assert.h"
#include "tessera/error.h"

namespace tessera {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
bool continues_word(char c) { return starts_name(c) || is_digit(c) || (c >= 'A' && c <= 'Z'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// For the caret: one column per byte, nothing that a terminal acts on.
std::string printable(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\t') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  return line;
}

std::string quoted(char c) {
  return c >= ' ' && c <= '~' ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

constexpr std::string_view kOperandExpected = "expected a number, a name, a function, '-' or '('";

}  // namespace

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) { result_.text_ = std::string(text); }

  Expression parse() {
    result_.code_.clear();
    expression();
    if (at_ < text_.size()) fail(at_, fmt::format("unexpected {} after a complete expression", quoted(text_[at_])));
    check_stack();
    return std::move(result_);
  }

 private:
  using Opcode = Expression::Opcode;

  [[noreturn]] void fail(std::size_t place, const std::string& message) const {
    const Diagnostic diagnostic{"expression", 1, static_cast<int>(place) + 1, message, printable(text_)};
    throw Error(ErrorKind::usage, diagnostic.to_string());
  }

  void skip_spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool next_is(char c) {
    skip_spaces();
    return at_ < text_.size() && text_[at_] == c;
  }
  void expect(char c, std::string_view where) {
    if (!next_is(c)) fail(at_, fmt::format("expected '{}' {}", c, where));
    ++at_;
  }

  void expression() {
    term();
    while (next_is('+') || next_is('-')) {
      const std::size_t place = at_++;
      term();
      emit(text_[place] == '+' ? Opcode::add : Opcode::subtract, place);
    }
  }

  void term() {
    factor();
    while (next_is('*')) {
      const std::size_t place = at_++;
      factor();
      emit(Opcode::multiply, place);
    }
  }

  void factor() {
    skip_spaces();
    if (at_ == text_.size()) fail(at_, std::string(kOperandExpected));
    const char c = text_[at_];
    if (is_digit(c)) return integer(at_, false);
    if (starts_name(c)) return word();
    if (c == '-') return sign();
    if (c != '(') fail(at_, fmt::format("unexpected {}: {}", quoted(c), kOperandExpected));
    enter(at_++);
    expression();
    expect(')', "to close '('");
    --depth_;
  }

  // A sign straight before a number belongs to it, so that the smallest 64-bit value can be written.
  void sign() {
    const std::size_t place = at_++;
    skip_spaces();
    if (at_ < text_.size() && is_digit(text_[at_])) return integer(at_, true);
    enter(place);
    factor();
    emit(Opcode::negate, place);
    --depth_;
  }

  void integer(std::size_t place, bool negative) {
    std::string digits = negative ? "-" : "";
    while (at_ < text_.size() && continues_word(text_[at_])) digits += text_[at_++];
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const std::from_chars_result result = std::from_chars(digits.data(), end, value);
    if (result.ptr != end)
      fail(place, fmt::format("'{}' is neither a number nor a name", text_.substr(place, at_ - place)));
    if (result.ec != std::errc()) fail(place, fmt::format("{} does not fit 64 bits", digits));
    if (text_[place] == '0' && at_ - place > 1) fail(place, fmt::format("{}: a number has no leading zeros", digits));
    result_.code_.push_back({Opcode::constant, value});
  }

  void word() {
    const std::size_t place = at_;
    while (at_ < text_.size() && (starts_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view name = text_.substr(place, at_ - place);
    if (name == "ceil_div") return call(Opcode::ceil_div, name, place);
    if (name == "min") return call(Opcode::min, name, place);
    if (name == "max") return call(Opcode::max, name, place);
    if (next_is('(')) fail(place, fmt::format("'{}' is not a function: ceil_div, min and max are", name));
    std::vector<std::string>& names = result_.names_;
    const auto found = std::find(names.begin(), names.end(), name);
    result_.code_.push_back({Opcode::name, found - names.begin()});
    if (found == names.end()) names.emplace_back(name);
  }

  void call(Opcode opcode, std::string_view name, std::size_t place) {
    enter(place);
    expect('(', fmt::format("after the function '{}'", name));
    expression();
    expect(',', fmt::format("between the two operands of '{}'", name));
    expression();
    expect(')', fmt::format("after the two operands of '{}'", name));
    emit(opcode, place);
    --depth_;
  }

  void enter(std::size_t place) {
    if (++depth_ > kMaxExpressionDepth) fail(place, fmt::format("more than {} levels deep", kMaxExpressionDepth));
  }

  // Operands that are numbers are folded: a code that ends in two constants has exactly them as its last two operands.
  void emit(Opcode opcode, std::size_t place) {
    std::vector<Expression::Instruction>& code = result_.code_;
    const std::size_t arity = opcode == Opcode::negate ? 1 : 2;
    const auto is_constant = [](const Expression::Instruction& i) { return i.opcode == Opcode::constant; };
    if (!std::all_of(code.end() - static_cast<std::ptrdiff_t>(arity), code.end(), is_constant)) {
      code.push_back({opcode, 0});
      return;
    }
    const std::int64_t b = code.back().operand;
    const std::int64_t a = code[code.size() - arity].operand;
    code.resize(code.size() - arity);
    try {
      code.push_back({Opcode::constant, Expression::step(opcode, a, b, {})});
    } catch (const Error& error) {
      fail(place, error.what());
    }
  }

  void check_stack() const {
    int depth = 0;
    int deepest = 0;
    for (const Expression::Instruction& instruction : result_.code_) {
      if (instruction.opcode == Opcode::constant || instruction.opcode == Opcode::name)
        deepest = std::max(deepest, ++depth);
      else if (instruction.opcode != Opcode::negate)
        --depth;
    }
    if (deepest > kMaxExpressionDepth)
      fail(0, fmt::format("needs {} intermediate values at once: at most {}", deepest, kMaxExpressionDepth));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Expression result_;
};

Expression::Expression(std::int64_t constant)
    : text_(std::to_string(constant)), code_{Instruction{Opcode::constant, constant}} {}

Expression Expression::parse(std::string_view text) {
  text = trimmed(text);
  if (text.size() > kMaxExpressionLength)
    throw Error(ErrorKind::usage,
                fmt::format("expression of {} characters: at most {}", text.size(), kMaxExpressionLength));
  return ExpressionParser(text).parse();
}

std::int64_t Expression::evaluate(std::span<const std::int64_t> values) const {
  TESSERA_ASSERT(values.size() == names_.size(), fmt::format("{} values, {} names", values.size(), names_.size()));
  return run(values);
}

// One checked operation. text labels the error; empty while parsing, where the caret does.
std::int64_t Expression::step(Opcode opcode, std::int64_t a, std::int64_t b, const std::string& text) {
  std::int64_t value = 0;
  if (try_step(opcode, a, b, value)) return value;
  const std::string_view symbol = opcode == Opcode::add ? "+" : opcode == Opcode::subtract ? "-" : "*";
  const std::string subject = text.empty() ? "" : fmt::format("expression '{}': ", text);
  if (opcode == Opcode::ceil_div)
    throw Error(ErrorKind::usage, fmt::format("{}ceil_div({}, {}): the divisor must be at least 1", subject, a, b));
  if (opcode == Opcode::negate) throw Error(ErrorKind::usage, fmt::format("{}-({}) does not fit 64 bits", subject, b));
  throw Error(ErrorKind::usage, fmt::format("{}{} {} {} does not fit 64 bits", subject, a, symbol, b));
}

std::int64_t Expression::run(std::span<const std::int64_t> values) const {
  std::array<std::int64_t, kMaxExpressionDepth> stack;  // NOLINT: the code writes before it reads
  std::size_t size = 0;
  for (const Instruction& instruction : code_) {
    switch (instruction.opcode) {
      case Opcode::constant:
        stack[size++] = instruction.operand;
        break;
      case Opcode::name:
        stack[size++] = values[static_cast<std::size_t>(instruction.operand)];
        break;
      case Opcode::negate:
        stack[size - 1] = step(Opcode::negate, 0, stack[size - 1], text_);
        break;
      default:
        --size;
        stack[size - 1] = step(instruction.opcode, stack[size - 1], stack[size], text_);
    }
  }
  return stack[0];
}

}  // namespace tessera
