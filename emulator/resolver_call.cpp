// PTX ISA, "Control Flow Instructions: call, ret", "Abstracting the ABI".
//
// A device function is expanded at each place where it is called: its
// parameters and results are the caller's .param variables under other names,
// ret jumps behind the call, and divergence needs nothing new. Recursion and
// indirect calls are refused by name. What the runtime provides (vprintf,
// __assertfail) is one instruction.
#include <fmt/format.h>

#include "emulator/bind.h"
#include "emulator/isa.h"
#include "emulator/resolver_state.h"

namespace tessera::emulator {
namespace {

constexpr std::uint64_t kMaxInstructions = std::uint64_t{1} << 22;
constexpr std::size_t kMaxNesting = 64;

bool is_call(const syntax::Instruction& instruction) {
  return instruction.opcode == "call" || instruction.opcode == "call.uni";
}

/// call (results), name, (arguments), table: what is there of it.
struct CallParts {
  const syntax::Operand* results = nullptr;
  const syntax::Operand* name = nullptr;
  const syntax::Operand* arguments = nullptr;
  bool is_indirect = false;
};
CallParts parts_of(const syntax::Instruction& call) {
  using Kind = syntax::Operand::Kind;
  CallParts parts;
  for (const syntax::Operand& operand : call.operands) {
    if (operand.kind == Kind::tuple)
      (parts.name == nullptr ? parts.results : parts.arguments) = &operand;
    else if (operand.kind == Kind::name && parts.name == nullptr)
      parts.name = &operand;
    else
      parts.is_indirect = true;
  }
  return parts;
}

}  // namespace

const syntax::Function* EntryResolver::find_function(std::string_view name) const {
  for (const syntax::Function& function : program_.module.functions)
    if (!function.is_entry && function.has_body && function.name == name) return &function;
  return nullptr;
}

// How many instructions a statement becomes: an expanded call is a branch
// around it and the function's body.
std::uint64_t EntryResolver::emitted(const syntax::Statement& statement) {
  if (!is_call(statement.instruction)) return 1;
  const CallParts parts = parts_of(statement.instruction);
  const syntax::Function* callee = parts.name == nullptr ? nullptr : find_function(parts.name->name);
  return callee == nullptr ? 1 : 1 + emitted(*callee);
}
std::uint64_t EntryResolver::emitted(const syntax::Function& function) {
  // In a cycle the size does not matter: expanding it is refused.
  if (const auto it = emitted_.find(&function); it != emitted_.end()) return it->second;
  // As deep as this it is refused as well.
  if (nesting_ >= kMaxNesting) return kMaxInstructions;
  ++nesting_;
  emitted_[&function] = 0;
  std::uint64_t sum = 0;
  for (const syntax::Statement& statement : function.body)
    if (statement.kind == syntax::Statement::Kind::instruction)
      sum = std::min(sum + emitted(statement), kMaxInstructions);
  --nesting_;
  return emitted_[&function] = sum;
}

bool EntryResolver::resolve_call(const syntax::Statement& statement) {
  if (!is_call(statement.instruction)) return false;
  const CallParts parts = parts_of(statement.instruction);
  if (parts.name == nullptr) fail(statement.place, "call of nothing");
  if (parts.is_indirect || scopes_.find_register(parts.name->name))
    fail(statement.place, "indirect call: the emulator executes calls of named functions only");
  if (const syntax::Function* callee = find_function(parts.name->name))
    expand_call(statement, *callee, parts.results, parts.arguments);
  else
    bind_builtin(statement, parts.name->name, parts.results, parts.arguments);
  return true;
}

// ret within a function that is expanded.
bool EntryResolver::resolve_return(const syntax::Statement& statement) {
  const std::string_view opcode = statement.instruction.opcode;
  if (calls_.empty() || (opcode != "ret" && opcode != "ret.uni")) return false;
  add_branch(statement, calls_.back().return_pc, false);
  return true;
}

void EntryResolver::add_branch(const syntax::Statement& statement, std::uint32_t target, bool when_guard_fails) {
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  std::string problem;
  find_form("bra", decoded, problem);
  decoded.in = &in;
  in.form = decoded.form;
  if (!statement.instruction.guard.empty()) {
    const auto guard = scopes_.find_register(statement.instruction.guard);
    if (!guard || guard->type != Type::pred)
      fail(statement.place, fmt::format("'{}' is not a predicate register", statement.instruction.guard));
    in.guard = guard->id;
    in.guard_negated = statement.instruction.guard_negated != when_guard_fails;
  } else if (when_guard_fails) {
    // Nobody skips an unguarded call: a branch to the next instruction keeps
    // the count.
    target = static_cast<std::uint32_t>(entry_.code.size());
  }
  Operand label;
  label.kind = Operand::Kind::label;
  label.value = target;
  entry_.operand_lists.push_back({label});
  in.op = entry_.operand_lists.back().data();
  in.num_operands = 1;
  in.run = decoded.form->bind(decoded);
}

void EntryResolver::expand_call(const syntax::Statement& statement, const syntax::Function& callee,
                                const syntax::Operand* results, const syntax::Operand* arguments) {
  if (calls_.size() >= kMaxNesting)
    fail(statement.place, fmt::format("calls nest deeper than {} functions", kMaxNesting));
  for (const Call& call : calls_)
    if (call.function == &callee)
      fail(statement.place, fmt::format("'{}' calls itself: the emulator executes no recursion", callee.name));
  if (entry_.code.size() + emitted(callee) >= kMaxInstructions)
    fail(statement.place, fmt::format("calls make more than {} instructions of this kernel", kMaxInstructions));
  const auto return_pc = static_cast<std::uint32_t>(entry_.code.size() + emitted(statement));
  add_branch(statement, return_pc, true);
  std::vector<std::pair<std::string_view, Symbol>> aliases;
  const auto alias = [&](const std::vector<syntax::Variable>& names, const syntax::Operand* given, const char* what) {
    const std::size_t count = given == nullptr ? 0 : given->elements.size();
    if (names.size() != count)
      fail(statement.place, fmt::format("'{}' has {} {}; the call gives {}", callee.name, names.size(), what, count));
    for (std::size_t i = 0; i < count; ++i) {
      const Symbol* symbol = scopes_.find_symbol(given->elements[i].name);
      if (symbol == nullptr || symbol->space != syntax::Space::local)
        fail(given->elements[i].place,
             fmt::format("'{}' is not a .param variable of this body", given->elements[i].name));
      aliases.emplace_back(names[i].name, *symbol);
    }
  };
  alias(callee.parameters, arguments, "parameters");
  alias(callee.results, results, "results");
  calls_.push_back({&callee, return_pc});
  scopes_.open(true);
  for (const auto& [name, symbol] : aliases) scopes_.add_symbol(name, symbol);
  resolve_body(callee);
  scopes_.close();
  calls_.pop_back();
}

// op: result (or none), then the arguments: addresses in local memory.
void EntryResolver::bind_builtin(const syntax::Statement& statement, std::string_view name,
                                 const syntax::Operand* results, const syntax::Operand* arguments) {
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  std::string problem;
  const std::string opcode = fmt::format("call.{}", name);  // `decoded` points into it
  if (!find_form(opcode, decoded, problem))
    fail(statement.place, fmt::format("call of '{}': the function has no body here and the "
                                      "emulator does not provide it",
                                      name));
  decoded.in = &in;
  in.form = decoded.form;
  if (!statement.instruction.guard.empty()) {
    const auto guard = scopes_.find_register(statement.instruction.guard);
    if (!guard) fail(statement.place, fmt::format("'{}' is not a register", statement.instruction.guard));
    in.guard = guard->id;
    in.guard_negated = statement.instruction.guard_negated;
  }
  std::vector<Operand> bound(1);
  const auto bind_all = [&](const syntax::Operand* given) {
    if (given == nullptr) return;
    for (const syntax::Operand& element : given->elements) {
      const Symbol* symbol = scopes_.find_symbol(element.name);
      if (symbol == nullptr || symbol->space != syntax::Space::local)
        fail(element.place, fmt::format("'{}' is not a .param variable of this body", element.name));
      Operand operand = symbol_address(*symbol, Type::b64, false);
      operand.kind = Operand::Kind::address;
      operand.is_immediate = false;
      operand.value = 0;
      bound.push_back(operand);
    }
  };
  bind_all(results);
  if (bound.size() == 2) {
    bound[0] = bound[1];
    bound.pop_back();
  }
  bind_all(arguments);
  entry_.operand_lists.push_back(std::move(bound));
  in.op = entry_.operand_lists.back().data();
  in.num_operands = static_cast<std::uint8_t>(entry_.operand_lists.back().size());
  in.run = decoded.form->bind(decoded);
  if (in.run == nullptr) fail(statement.place, fmt::format("call of '{}': not with these parameters", name));
}

}  // namespace tessera::emulator
