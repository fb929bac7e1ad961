#include "emulator/syntax/register_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "emulator/syntax/call_graph.h"

namespace tessera::emulator {
namespace {

using syntax::Function;
using syntax::Instruction;
using syntax::Operand;
using syntax::Statement;
using syntax::Variable;

class Rewriter {
 public:
  explicit Rewriter(syntax::Module& module) : module_(module) {}

  void run() {
    for (Function& function : module_.functions) {
      for (auto* list : {&function.parameters, &function.results})
        for (Variable& variable : *list)
          if (variable.is_register && !fits(variable)) refuse(function, variable);
    }
    for (std::size_t i = 0; i < module_.functions.size(); ++i)
      if (!module_.functions[i].is_entry) by_name_.emplace(module_.functions[i].name, i);
    for (Function& function : module_.functions) {
      const auto calls = [](const Statement& s) {
        return s.kind == Statement::Kind::instruction && is_call(s.instruction);
      };
      if (std::any_of(function.body.begin(), function.body.end(), calls)) rewrite_calls(function);
      rewrite_formals(function);
    }
  }

 private:
  // As ptxas does. The function is not executed then.
  void refuse(Function& function, Variable& variable) {
    variable.is_register = false;
    function.problems.push_back({module_.file, variable.place.line, variable.place.column,
                                 fmt::format("'{}': a parameter in a register has 32 or 64 bits", variable.name), ""});
  }

  static bool fits(const Variable& variable) {
    return variable.extents.empty() && variable.vector == 1 &&
           (bits_of(variable.type) == 32 || bits_of(variable.type) == 64);
  }

  std::string_view made(std::string name) { return module_.joined->emplace_back(std::move(name)); }

  static Operand named(std::string_view name, syntax::Place place, Operand::Kind kind = Operand::Kind::name) {
    Operand operand;
    operand.kind = kind;
    operand.name = name;
    operand.place = place;
    return operand;
  }

  // Like `at`: its guard, place and line.
  static Statement instruction(const Statement& at, std::string_view opcode, std::vector<Operand> operands) {
    Statement made = at;
    made.kind = Statement::Kind::instruction;
    made.instruction.opcode = opcode;
    made.instruction.operands = std::move(operands);
    return made;
  }

  Statement move(const Statement& at, bool is_load, const Variable& variable, const Operand& value) {
    const Type type = variable.type;
    const bool is_64 = bits_of(type) == 64;
    const char* const word = type == Type::f32 ? "f32" : type == Type::f64 ? "f64" : is_64 ? "b64" : "b32";
    const Operand place = named(variable.name, value.place, Operand::Kind::address);
    const std::string_view opcode = made(fmt::format("{}.param.{}", is_load ? "ld" : "st", word));
    return is_load ? instruction(at, opcode, {value, place}) : instruction(at, opcode, {place, value});
  }

  // Formals become .param variables, and registers of their names hold what is in them.
  void rewrite_formals(Function& function) {
    const auto is_register = [](const Variable& variable) { return variable.is_register; };
    const bool has_results = std::any_of(function.results.begin(), function.results.end(), is_register);
    if (!has_results && std::none_of(function.parameters.begin(), function.parameters.end(), is_register)) return;
    Statement at;
    at.place = function.place;
    std::vector<Statement> head, tail;
    for (auto* list : {&function.parameters, &function.results})
      for (Variable& variable : *list) {
        if (!variable.is_register) continue;
        Statement& declared = head.emplace_back(at);
        declared.kind = Statement::Kind::registers;
        declared.reg.type = variable.type;
        declared.reg.name = variable.name;
        const Operand value = named(variable.name, variable.place);
        variable.name = made(fmt::format("{} (parameter)", variable.name));
        variable.is_register = false;
        (list == &function.parameters ? head : tail).push_back(move(at, list == &function.parameters, variable, value));
      }
    if (!function.has_body || function.body.size() < 2) return;  // the latter: it could not be read
    if (has_results) {
      const std::string_view end = made(fmt::format("{} (return)", function.name));
      for (Statement& statement : function.body)
        if (statement.kind == Statement::Kind::instruction &&
            (statement.instruction.opcode == "ret" || statement.instruction.opcode == "ret.uni"))
          statement = instruction(statement, "bra", {named(end, statement.place)});
      Statement label = at;
      label.kind = Statement::Kind::label;
      label.label = end;
      tail.insert(tail.begin(), label);
      tail.push_back(instruction(at, "ret", {}));
    }
    // The body's own braces are its first and its last statement.
    function.body.insert(function.body.begin() + 1, head.begin(), head.end());
    function.body.insert(function.body.end() - 1, tail.begin(), tail.end());
  }

  void rewrite_calls(Function& function) {
    std::set<std::string_view> in_memory;
    for (const auto* list : {&function.parameters, &function.results})
      for (const Variable& variable : *list)
        if (!variable.is_register) in_memory.insert(variable.name);
    for (const Statement& statement : function.body)
      if (statement.kind == Statement::Kind::variable) in_memory.insert(statement.variable.name);
    std::vector<Statement> body;
    for (Statement& statement : function.body) {
      const Function* const callee = callee_of(statement);
      std::vector<Statement> loads;
      if (callee != nullptr) {
        const CallParts parts = parts_of(statement.instruction);
        for (Operand& operand : statement.instruction.operands) {
          if (&operand != parts.results && &operand != parts.arguments) continue;
          const bool is_result = &operand == parts.results;
          const std::vector<Variable>& formals = is_result ? callee->results : callee->parameters;
          if (formals.size() != operand.elements.size()) continue;  // the resolver says so
          for (std::size_t i = 0; i < formals.size(); ++i) {
            Operand& element = operand.elements[i];
            if (element.kind == Operand::Kind::name && in_memory.count(element.name) != 0) continue;
            if (!fits(formals[i])) continue;
            Statement variable = statement;
            variable.kind = Statement::Kind::variable;
            variable.variable = formals[i];
            variable.variable.space = syntax::Space::param;
            variable.variable.is_register = false;
            variable.variable.name = made(fmt::format("call's {}", ++count_));
            body.push_back(variable);
            if (!is_result)
              body.push_back(move(statement, false, variable.variable, element));
            else if (element.name != "_")
              loads.push_back(move(statement, true, variable.variable, element));
            element = named(variable.variable.name, element.place);
          }
        }
      }
      body.push_back(std::move(statement));
      body.insert(body.end(), loads.begin(), loads.end());
    }
    function.body = std::move(body);
  }

  const Function* callee_of(const Statement& statement) const {
    if (statement.kind != Statement::Kind::instruction || !is_call(statement.instruction)) return nullptr;
    const CallParts parts = parts_of(statement.instruction);
    if (parts.target == nullptr) return nullptr;
    const auto it = by_name_.find(parts.target->name);
    return it == by_name_.end() ? nullptr : &module_.functions[it->second];
  }

  syntax::Module& module_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  int count_ = 0;
};

}  // namespace

void pass_parameters_in_memory(syntax::Module& module) { Rewriter(module).run(); }

}  // namespace tessera::emulator
