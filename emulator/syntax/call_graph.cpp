#include "emulator/syntax/call_graph.h"

#include <algorithm>

namespace tessera::emulator {

bool is_call(const syntax::Instruction& instruction) {
  return instruction.opcode == "call" || instruction.opcode == "call.uni";
}

CallParts parts_of(const syntax::Instruction& call) {
  using Kind = syntax::Operand::Kind;
  CallParts parts;
  for (const syntax::Operand& operand : call.operands) {
    if (operand.kind == Kind::tuple)
      (parts.target == nullptr ? parts.results : parts.arguments) = &operand;
    else if (operand.kind == Kind::name && parts.target == nullptr)
      parts.target = &operand;
    else
      parts.is_indirect = true;
  }
  return parts;
}

CallGraph::CallGraph(const syntax::Module& module) {
  for (const Function& function : module.functions)
    if (!function.is_entry && function.has_body) by_name_.emplace(function.name, &function);
  for (const Function& function : module.functions)
    if (function.has_body) read(function);
  for (const syntax::Variable& variable : module.variables)
    for (const syntax::Initializer& value : variable.values)
      if (!value.symbol.empty()) take_address(value.symbol);
  find_cycles();
}

const syntax::Function* CallGraph::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

void CallGraph::take_address(std::string_view name) {
  const Function* function = find(name);
  if (function != nullptr && std::find(address_taken_.begin(), address_taken_.end(), function) == address_taken_.end())
    address_taken_.push_back(function);
}

void CallGraph::read(const Function& function) {
  Node& node = nodes_[&function];
  for (const syntax::Statement& statement : function.body) {
    if (statement.kind != syntax::Statement::Kind::instruction) continue;
    const syntax::Instruction& instruction = statement.instruction;
    if (is_call(instruction)) {
      const CallParts parts = parts_of(instruction);
      const Function* callee = parts.target == nullptr ? nullptr : find(parts.target->name);
      if (callee != nullptr)
        node.callees.push_back(callee);
      else
        node.has_indirect_call = node.has_indirect_call || parts.is_indirect;
    } else if (instruction.opcode.substr(0, 3) == "mov" && instruction.operands.size() == 2) {
      take_address(instruction.operands[1].name);
    } else if (instruction.opcode.substr(0, 6) == "alloca") {
      node.has_alloca = true;
    }
  }
}

// Functions that call nobody are taken away, again and again, then those that nobody calls: what is left lies on
// cycles or between them. An indirect call may call whatever has an address.
void CallGraph::find_cycles() {
  std::unordered_map<const Function*, std::vector<const Function*>> callers;
  std::unordered_map<const Function*, std::size_t> calls, called;
  for (auto& [function, node] : nodes_) {
    if (node.has_alloca && !function->is_entry) needs_frame_.insert(function);
    std::sort(node.callees.begin(), node.callees.end());
    node.callees.erase(std::unique(node.callees.begin(), node.callees.end()), node.callees.end());
  }
  const auto callees_of = [&](const Node& node) {
    std::vector<const Function*> all = node.callees;
    if (node.has_indirect_call)
      for (const Function* function : address_taken_)
        if (!std::binary_search(node.callees.begin(), node.callees.end(), function)) all.push_back(function);
    return all;
  };
  for (const auto& [function, node] : nodes_) {
    const std::vector<const Function*> all = callees_of(node);
    calls[function] = all.size();
    for (const Function* callee : all) {
      callers[callee].push_back(function);
      ++called[callee];
    }
  }
  std::unordered_set<const Function*> gone;
  std::vector<const Function*> ready;
  for (const auto& [function, node] : nodes_)
    if (calls[function] == 0) ready.push_back(function);
  while (!ready.empty()) {
    const Function* function = ready.back();
    ready.pop_back();
    gone.insert(function);
    for (const Function* caller : callers[function])
      if (--calls[caller] == 0) ready.push_back(caller);
  }
  const auto leave = [&](const Function* function) {
    for (const Function* callee : callees_of(nodes_.at(function)))
      if (!gone.contains(callee) && --called[callee] == 0) ready.push_back(callee);
  };
  for (const auto& [function, node] : nodes_)
    if (!gone.contains(function) && called[function] == 0) ready.push_back(function);
  while (!ready.empty()) {
    const Function* function = ready.back();
    ready.pop_back();
    gone.insert(function);
    leave(function);
  }
  for (const auto& [function, node] : nodes_)
    if (!gone.contains(function) && !function->is_entry) needs_frame_.insert(function);
}

std::vector<const syntax::Function*> CallGraph::out_of_line(const Function& entry, bool all) const {
  std::vector<const Function*> found;
  std::vector<const Function*> open{&entry};
  std::unordered_set<const Function*> seen{&entry};
  bool calls_addresses = false;
  const auto visit = [&](const Function* function) {
    if (seen.insert(function).second) open.push_back(function);
  };
  const auto add = [&](const Function* function) {
    if (std::find(found.begin(), found.end(), function) == found.end()) found.push_back(function);
  };
  while (!open.empty()) {
    const Function* function = open.back();
    open.pop_back();
    if (function != &entry && (all || needs_frame(*function))) add(function);
    const Node& node = nodes_.at(function);
    for (const Function* callee : node.callees) visit(callee);
    if (node.has_indirect_call && !calls_addresses) {
      calls_addresses = true;
      for (const Function* taken : address_taken_) visit(taken);
    }
  }
  if (calls_addresses)
    for (const Function* taken : address_taken_) add(taken);
  return found;
}

}  // namespace tessera::emulator
