// Variables, statements and operands. PTX ISA, "State Spaces, Types, and Variables", "Instruction Operands".
#include <fmt/format.h>

#include <bit>

#include "emulator/syntax/parser_state.h"

namespace tessera::emulator {
namespace {
constexpr int kMaxNesting = 32;
constexpr std::size_t kMaxProblems = 20;
constexpr std::int64_t kMaxRegisters = 1 << 20;
}  // namespace

using syntax::Operand;
using syntax::Space;
using syntax::Statement;
using syntax::Variable;

// .align N, .attribute(...), .ptr ..., .v4, type, name: in the order in which compilers write them.
Variable Parser::parse_variable_head(Space space) {
  Variable variable;
  variable.space = space;
  for (;;) {
    if (accept(".align")) {
      const std::int64_t alignment = expect_integer("an alignment");
      if (alignment < 1 || alignment > 65536 || !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
        fail(peek(), fmt::format("an alignment is a power of two up to 65536, not {}", alignment));
      variable.alignment = static_cast<int>(alignment);
    } else if (accept(".attribute")) {
      expect("(");
      while (!at_end() && !accept(")")) take();
    } else if (is(".v2") || is(".v4") || is(".v8")) {
      variable.vector = take().text[2] - '0';
    } else if (accept(".ptr")) {
      while (is(".global") || is(".const") || is(".shared") || is(".local") || is(".generic")) take();
      if (accept(".align")) expect_integer("an alignment");  // of what it points to, not of the parameter
    } else if (peek().kind == TokenKind::word && peek().text[0] == '.') {
      const Token token = take();
      variable.is_opaque = token.text == ".texref" || token.text == ".samplerref" || token.text == ".surfref";
      variable.type = variable.is_opaque ? Type::b64 : type_of(token.text.substr(1));
      if (variable.type == Type::none) fail(token, fmt::format("'{}' is not a type", token.text));
    } else {
      break;
    }
  }
  variable.place = place();
  if (variable.type == Type::none) fail(peek(), "a variable needs a type");
  variable.name = expect_word("a variable's name");
  return variable;
}

void Parser::parse_extents(Variable& variable) {
  while (accept("[")) {
    const Token token = peek();
    variable.extents.push_back(is("]") ? -1 : expect_integer("an extent"));
    if (variable.extents.back() < 0 && token.text != "]")
      fail(token, fmt::format("an extent is not negative: {}", variable.extents.back()));
    expect("]");
  }
}

void Parser::parse_variable_tail(Variable& variable) {
  parse_extents(variable);
  if (!accept("=")) return;
  if (!variable.is_opaque) return parse_initializers(variable, 0);
  while (!at_end() && !is(";")) take();  // { addr_mode_0 = wrap, filter_mode = linear }
}

void Parser::parse_initializers(Variable& variable, int depth) {
  if (depth > kMaxNesting) fail(peek(), "braces nested too deeply");
  if (!accept("{")) {
    variable.values.push_back(parse_initializer(variable.type));
    return;
  }
  while (!at_end() && !is("}")) {
    parse_initializers(variable, depth + 1);
    if (!accept(",")) break;
  }
  expect("}");
}

syntax::Initializer Parser::parse_initializer(Type type) {
  syntax::Initializer value;
  const bool is_minus = accept("-");
  const Token token = take();
  if (token.kind == TokenKind::word) {
    value.symbol = token.text;
    if (token.text == "generic") {
      value.is_generic = true;
      expect("(");
      value.symbol = expect_word("a symbol");
      expect(")");
    }
    value.bits = static_cast<std::uint64_t>(parse_displacement());
    return value;
  }
  if (token.kind == TokenKind::integer) {
    value.bits = is_minus ? 0 - token.bits : token.bits;
  } else if (token.kind == TokenKind::real32 || token.kind == TokenKind::real64) {
    const double real = token.kind == TokenKind::real32
                            ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(token.bits)))
                            : std::bit_cast<double>(token.bits);
    const double signed_real = is_minus ? -real : real;
    value.bits = type == Type::f32 ? std::bit_cast<std::uint32_t>(static_cast<float>(signed_real))
                                   : std::bit_cast<std::uint64_t>(signed_real);
    if (type == Type::f32 && token.kind == TokenKind::real32) value.bits = token.bits ^ (is_minus ? 0x80000000u : 0u);
  } else {
    fail(token, fmt::format("'{}' is not a value", token.text));
  }
  return value;
}

Statement Parser::statement(Statement::Kind kind) const {
  Statement s;
  s.kind = kind;
  s.place = place();
  s.file = loc_file_;
  s.line = loc_line_;
  s.caller = loc_caller_;
  return s;
}

void Parser::parse_body(syntax::Function& function) {
  loc_file_ = loc_line_ = 0;
  loc_caller_ = -1;
  loc_callers_.clear();
  int depth = 0;
  do {
    if (is("{")) {
      function.body.push_back(statement(Statement::Kind::open_scope));
      take();
      if (++depth > kMaxNesting) fail(peek(), "scopes nested too deeply");
    } else if (is("}")) {
      function.body.push_back(statement(Statement::Kind::close_scope));
      take();
      --depth;
    } else {
      try {
        parse_statement(function);
      } catch (const SyntaxProblem&) {
        // One kernel's trouble is not the module's.
        if (function.problems.size() < kMaxProblems) function.problems.push_back(std::move(diagnostics_.back()));
        diagnostics_.pop_back();
        recover();
      }
    }
  } while (depth > 0 && !at_end());
  if (depth > 0) fail(peek(), fmt::format("'{}' does not end: a '}}' is missing", function.name));
}

void Parser::parse_statement(syntax::Function& function) {
  if (accept(";")) return;
  if (peek().kind == TokenKind::word && peek().text[0] == '.') return parse_directive(function);
  if (peek().kind == TokenKind::word && peek(1).text == ":" && peek(1).kind == TokenKind::punctuation) {
    Statement s = statement(Statement::Kind::label);
    s.label = take().text;
    take();
    if (accept(".branchtargets")) {
      s.kind = Statement::Kind::branch_targets;
      do s.targets.push_back(expect_word("a label"));
      while (accept(","));
      expect(";");
    } else if (is(".calltargets") || is(".callprototype")) {
      // An indirect call is compared with the function that it reaches when it does.
      while (!at_end() && !is(";")) take();
      accept(";");
      return;
    }
    function.body.push_back(std::move(s));
    return;
  }
  parse_instruction(function);
}

void Parser::parse_directive(syntax::Function& function) {
  if (is(".reg")) return parse_registers(function);
  if (accept(".loc")) return parse_loc();
  if (is(".file")) return parse_file();
  if (accept(".pragma")) {
    while (!at_end() && !accept(";")) take();
    return;
  }
  const Token token = take();
  Space space = Space::global;
  if (token.text == ".shared")
    space = Space::shared;
  else if (token.text == ".local")
    space = Space::local;
  else if (token.text == ".const")
    space = Space::constant;
  else if (token.text == ".param")
    space = Space::param;
  else if (token.text != ".global")
    fail(token, fmt::format("'{}' is not a directive that can stand in a body", token.text));
  do {
    Statement s = statement(Statement::Kind::variable);
    s.variable = parse_variable_head(space);
    parse_variable_tail(s.variable);
    function.body.push_back(std::move(s));
  } while (accept(","));
  expect(";");
}

void Parser::parse_registers(syntax::Function& function) {
  take();
  const int vector = is(".v2") || is(".v4") ? take().text[2] - '0' : 1;
  const Token token = take();
  const Type type = token.text.size() > 1 ? type_of(token.text.substr(1)) : Type::none;
  if (type == Type::none) fail(token, fmt::format("'{}' is not a register type", token.text));
  do {
    Statement s = statement(Statement::Kind::registers);
    s.reg.type = type;
    s.reg.vector = vector;
    s.reg.name = expect_word("a register's name");
    if (accept("<")) {
      s.reg.count = expect_integer("a register count");
      if (s.reg.count < 0 || s.reg.count > kMaxRegisters)
        fail(peek(), fmt::format("{} registers are more than {}", s.reg.count, kMaxRegisters));
      expect(">");
    }
    function.body.push_back(std::move(s));
  } while (accept(","));
  expect(";");
}

// .loc file line column [, function_name label[+n]] [, inlined_at file line column]: no semicolon ends it.
void Parser::parse_loc() {
  loc_file_ = first_file_ + static_cast<int>(expect_integer("a file index"));
  loc_line_ = static_cast<int>(expect_integer("a line"));
  const int column = static_cast<int>(expect_integer("a column"));
  loc_caller_ = -1;
  while (accept(",")) {
    if (accept("function_name")) {
      expect_word("a label");
      parse_displacement();
    } else if (accept("inlined_at")) {
      std::array<int, 3> at{};
      at[0] = first_file_ + static_cast<int>(expect_integer("a file index"));
      at[1] = static_cast<int>(expect_integer("a line"));
      at[2] = static_cast<int>(expect_integer("a column"));
      loc_caller_ = caller_at(at);
    } else {
      fail(peek(), "expected function_name or inlined_at");
    }
  }
  loc_callers_[{loc_file_, loc_line_, column}] = loc_caller_;
}

// The compiler names the outer places first, so a place's own caller is known by the time it calls.
int Parser::caller_at(const std::array<int, 3>& at) {
  const auto known = loc_callers_.find(at);
  const int parent = known == loc_callers_.end() ? -1 : known->second;
  const auto [entry, is_new] =
      known_callers_.try_emplace({at[0], at[1], at[2], parent}, static_cast<int>(module_.callers.size()));
  if (is_new) module_.callers.push_back({at[0], at[1], parent});
  return entry->second;
}

void Parser::parse_instruction(syntax::Function& function) {
  Statement s = statement(Statement::Kind::instruction);
  if (accept("@")) {
    s.instruction.guard_negated = accept("!");
    s.instruction.guard = expect_word("a predicate");
    s.place = place();
  }
  s.instruction.opcode = expect_word("an instruction");
  // Hand-written assembly may have blanks before a modifier: `lop3 .b32`.
  while (peek().kind == TokenKind::word && peek().text[0] == '.')
    s.instruction.opcode = module_.joined->emplace_back(fmt::format("{}{}", s.instruction.opcode, take().text));
  while (!at_end() && !is(";")) {
    s.instruction.operands.push_back(parse_operand(0));
    if (!accept(",")) break;
  }
  expect(";");
  function.body.push_back(std::move(s));
}

Operand Parser::parse_operand(int depth) {
  if (depth > kMaxNesting) fail(peek(), "operands nested too deeply");
  if (is("[")) return parse_address();
  if (is("{")) {
    Operand list = parse_list("}", depth);
    return is("|") ? parse_second(std::move(list)) : list;
  }
  if (is("(") && depth == 0) return parse_list(")", depth);
  Operand operand;
  operand.place = place();
  parse_primary(operand);
  return is("|") ? parse_second(std::move(operand)) : operand;
}

// p|q, {d, ..}|p
Operand Parser::parse_second(Operand first) {
  Operand pair;
  pair.kind = Operand::Kind::pair;
  pair.place = first.place;
  pair.elements.push_back(std::move(first));
  take();
  Operand second;
  second.place = place();
  parse_primary(second);
  pair.elements.push_back(std::move(second));
  return pair;
}

void Parser::parse_primary(Operand& operand) {
  operand.is_negated = accept("!");
  const bool is_minus = accept("-");
  const Token token = take();
  switch (token.kind) {
    case TokenKind::word:
      operand.name = token.text;
      operand.is_minus = is_minus;
      operand.displacement = parse_displacement();
      return;
    case TokenKind::integer:
      operand.kind = Operand::Kind::integer;
      operand.value = (is_minus ? 0 - token.bits : token.bits) + static_cast<std::uint64_t>(parse_displacement());
      return;
    case TokenKind::real32:
      operand.kind = Operand::Kind::real32;
      operand.value = token.bits ^ (is_minus ? 0x80000000u : 0u);
      return;
    case TokenKind::real64:
      operand.kind = Operand::Kind::real64;
      operand.value = token.bits ^ (is_minus ? std::uint64_t{1} << 63 : 0u);
      return;
    default:
      fail(token, fmt::format("'{}' is not an operand", token.kind == TokenKind::end ? "the end" : token.text));
  }
}

std::int64_t Parser::parse_displacement() {
  std::uint64_t sum = 0;
  while (is("+") || is("-")) {
    const bool is_minus = take().text == "-";
    const auto value = static_cast<std::uint64_t>(expect_integer("a displacement"));
    sum += is_minus ? 0 - value : value;
  }
  return static_cast<std::int64_t>(sum);
}

Operand Parser::parse_address() {
  Operand operand;
  operand.kind = Operand::Kind::address;
  operand.place = place();
  expect("[");
  Operand base;
  parse_primary(base);
  operand.name = base.name;
  operand.value = base.value;
  operand.displacement = base.displacement;
  while (accept(",")) operand.elements.push_back(parse_operand(1));
  expect("]");
  return operand;
}

Operand Parser::parse_list(std::string_view close, int depth) {
  Operand operand;
  operand.kind = close == ")" ? Operand::Kind::tuple : Operand::Kind::list;
  operand.place = place();
  take();
  while (!at_end() && !is(close)) {
    operand.elements.push_back(parse_operand(depth + 1));
    if (!accept(",")) break;
  }
  expect(close);
  return operand;
}

}  // namespace tessera::emulator
