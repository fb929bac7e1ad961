// PTX ISA, "Control Flow Instructions: call, ret", "Abstracting the ABI".
//
// A device function is expanded at each place where it is called: its
// parameters and results are the caller's .param variables under other names,
// ret jumps behind the call, and divergence needs nothing new. Functions that
// cannot be, because they call themselves or are called by address, stand once,
// before the kernel's body (call_stack.h). What the runtime provides (vprintf,
// __assertfail, malloc, free) is one instruction; what nobody provides ends the
// launch when it is reached.
#include <fmt/format.h>

#include "emulator/instructions/bind.h"
#include "emulator/machine.h"
#include "emulator/syntax/isa.h"
#include "emulator/syntax/resolver_state.h"

namespace tessera::emulator {
namespace {

constexpr std::uint64_t kMaxInstructions = std::uint64_t{1} << 22;
constexpr std::size_t kMaxNesting = 64;

constexpr std::uint64_t kExpandedAtMost = std::uint64_t{1} << 19;  // above that calls stay calls

// The handler of a call that nobody answers.
Step refuse_call(Warp& w, const Instruction& in, Mask) {
  return w.fault(in, "not-supported", w.launch->entry.refusals.at(w.pc));
}

}  // namespace

// How many instructions a statement becomes: an expanded call is a branch
// around it and the function's body.
std::uint64_t EntryResolver::emitted(const syntax::Statement& statement) {
  if (!is_call(statement.instruction)) return 1;
  const CallParts parts = parts_of(statement.instruction);
  const syntax::Function* callee = parts.target == nullptr ? nullptr : graph_.find(parts.target->name);
  return callee == nullptr || !is_expanded(*callee) ? 1 : 1 + emitted(*callee);
}
std::uint64_t EntryResolver::emitted(const syntax::Function& function) {
  // In a cycle the size does not matter: such calls are not expanded.
  if (const auto it = emitted_.find(&function); it != emitted_.end()) return it->second;
  // As deep as this they are not either.
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
  if (parts.target == nullptr) fail(statement.place, "call of nothing");
  const syntax::Function* callee = graph_.find(parts.target->name);
  if (scopes_.find_register(parts.target->name) || (callee != nullptr && !is_expanded(*callee)))
    bind_call(statement, parts);
  else if (callee != nullptr)
    expand_call(statement, *callee, parts.results, parts.arguments);
  else
    bind_builtin(statement, parts.target->name, parts.results, parts.arguments);
  return true;
}

// ret within a function: of one that is expanded, a jump behind the call.
bool EntryResolver::resolve_return(const syntax::Statement& statement) {
  const std::string_view opcode = statement.instruction.opcode;
  if (opcode != "ret" && opcode != "ret.uni") return false;
  if (!calls_.empty()) {
    add_branch(statement, calls_.back().return_pc, false);
    return true;
  }
  if (frame_ == nullptr) return false;
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  std::string problem;
  find_form("ret", decoded, problem);
  decoded.in = &in;
  in.form = decoded.form;
  bind_guard(statement, in);
  in.run = bind::return_from_function(decoded);
  return true;
}

void EntryResolver::find_out_of_line() {
  // Expanded all the way it may be too much: then no function is.
  const bool is_too_much = emitted(function_) >= kExpandedAtMost;
  for (const syntax::Function* function : graph_.out_of_line(function_, is_too_much)) {
    out_of_line_.emplace(function, static_cast<std::uint32_t>(entry_.functions.size()));
    entry_.functions.emplace_back().function = function;
  }
  emitted_.clear();
  entry_.has_stack = !entry_.functions.empty() || graph_.uses_alloca(function_);
}

void EntryResolver::resolve_out_of_line(OutOfLine& made) {
  Frame frame;
  frame.made = &made;
  frame_ = &frame;
  made.pc = static_cast<std::uint32_t>(entry_.code.size());
  const auto first = static_cast<std::uint32_t>(registers_.size());
  scopes_.open(true);
  try {
    const auto declare = [&](const std::vector<syntax::Variable>& variables, std::vector<ParameterSlot>& slots) {
      for (const syntax::Variable& variable : variables) {
        syntax::Statement statement;
        statement.variable = variable;
        declare_variable(statement);
        const std::uint64_t offset = scopes_.find_symbol(variable.name)->address;
        slots.push_back({std::string(variable.name), offset, frame.bytes - offset});
      }
    };
    declare(made.function->parameters, made.parameters);
    declare(made.function->results, made.results);
  } catch (const ResolveProblem&) {
  }
  resolve_body(*made.function);
  // A body may end without ret.
  syntax::Statement end;
  end.place = made.function->place;
  end.instruction.opcode = "ret";
  resolve_return(end);
  scopes_.close();
  made.frame_bytes = static_cast<std::uint32_t>(frame.bytes);
  for (auto id = first; id < registers_.size(); ++id)
    made.registers.push_back({id, static_cast<std::uint8_t>(register_bytes(registers_[id].type))});
  frame_ = nullptr;
}

// op: target (none: `number` is the function), results, arguments. flags: how many results.
void EntryResolver::bind_call(const syntax::Statement& statement, const CallParts& parts) {
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  std::string problem;
  find_form(statement.instruction.opcode, decoded, problem);
  decoded.in = &in;
  in.form = decoded.form;
  bind_guard(statement, in);
  const std::size_t results = parts.results == nullptr ? 0 : parts.results->elements.size();
  const std::size_t arguments = parts.arguments == nullptr ? 0 : parts.arguments->elements.size();
  if (results + arguments > 200) fail(statement.place, "a call with more than 200 parameters");
  std::vector<Operand> bound(1);
  if (const auto reg = scopes_.find_register(parts.target->name)) {
    if (bits_of(reg->type) != 64)
      fail(parts.target->place,
           fmt::format("a function's address has 64 bits; '{}' has {}", parts.target->name, bits_of(reg->type)));
    bound[0].kind = Operand::Kind::reg;
    bound[0].bytes = 8;
    bound[0].offset = reg->id;
  } else {
    const syntax::Function& callee = *graph_.find(parts.target->name);
    if (callee.parameters.size() != arguments || callee.results.size() != results)
      fail(statement.place,
           fmt::format("'{}' has {} parameters and {} results; the call gives {} and takes {}", callee.name,
                       callee.parameters.size(), callee.results.size(), arguments, results));
    in.number = out_of_line_.at(&callee);
  }
  for (const syntax::Operand* given : {parts.results, parts.arguments})
    if (given != nullptr)
      for (const syntax::Operand& element : given->elements) bound.push_back(parameter_address(element));
  entry_.operand_lists.push_back(std::move(bound));
  in.op = entry_.operand_lists.back().data();
  in.num_operands = static_cast<std::uint8_t>(entry_.operand_lists.back().size());
  in.flags = static_cast<std::uint16_t>(results);
  in.run = decoded.form->bind(decoded);
}

void EntryResolver::bind_guard(const syntax::Statement& statement, Instruction& in) {
  if (statement.instruction.guard.empty()) return;
  const auto guard = scopes_.find_register(statement.instruction.guard);
  if (!guard || guard->type != Type::pred)
    fail(statement.place, fmt::format("'{}' is not a predicate register", statement.instruction.guard));
  in.guard = guard->id;
  in.guard_negated = statement.instruction.guard_negated;
}

// A variable that a call passes: its address in local memory.
Operand EntryResolver::parameter_address(const syntax::Operand& named) {
  const Symbol* symbol = scopes_.find_symbol(named.name);
  if (symbol == nullptr || symbol->space != syntax::Space::local)
    fail(named.place, fmt::format("'{}' is not a .param variable of this body", named.name));
  Operand operand = symbol_address(*symbol, Type::b64, false);
  operand.kind = Operand::Kind::address;
  operand.is_immediate = false;
  operand.value = 0;
  return operand;
}

void EntryResolver::add_branch(const syntax::Statement& statement, std::uint32_t target, bool when_guard_fails) {
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  std::string problem;
  find_form("bra", decoded, problem);
  decoded.in = &in;
  in.form = decoded.form;
  bind_guard(statement, in);
  if (in.guard != kNoGuard) {
    in.guard_negated = in.guard_negated != when_guard_fails;
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
  if (entry_.code.size() + emitted(callee) >= kMaxInstructions)
    fail(statement.place, fmt::format("calls make more than {} instructions of this kernel", kMaxInstructions));
  if (!callee.problems.empty()) {
    resolve_body(callee);  // says them
    throw ResolveProblem{};
  }
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
  Decoded decoded;
  std::string problem;
  const std::string opcode = fmt::format("call.{}", name);  // `decoded` points into it
  if (!find_form(opcode, decoded, problem))
    return bind_refusal(statement, fmt::format("call of '{}': the function has no body here and the emulator does not "
                                               "provide it",
                                               name));
  Instruction& in = new_instruction(statement);
  decoded.in = &in;
  in.form = decoded.form;
  bind_guard(statement, in);
  std::vector<Operand> bound(1);
  if (results != nullptr)
    for (const syntax::Operand& element : results->elements) bound.push_back(parameter_address(element));
  if (bound.size() == 2) {
    bound[0] = bound[1];
    bound.pop_back();
  }
  if (arguments != nullptr)
    for (const syntax::Operand& element : arguments->elements) bound.push_back(parameter_address(element));
  entry_.operand_lists.push_back(std::move(bound));
  in.op = entry_.operand_lists.back().data();
  in.num_operands = static_cast<std::uint8_t>(entry_.operand_lists.back().size());
  in.run = decoded.form->bind(decoded);
  if (in.run == nullptr) fail(statement.place, fmt::format("call of '{}': not with these parameters", name));
}

// An instruction that ends the launch when it is reached.
void EntryResolver::bind_refusal(const syntax::Statement& statement, std::string why) {
  entry_.refusals.emplace(static_cast<std::uint32_t>(entry_.code.size()), std::move(why));
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  std::string problem;
  find_form("call", decoded, problem);
  in.form = decoded.form;
  bind_guard(statement, in);
  in.run = refuse_call;
}

}  // namespace tessera::emulator
