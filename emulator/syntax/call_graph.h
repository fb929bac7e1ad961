// Which functions of a module call which, and which of them cannot be expanded where they are called.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "emulator/syntax/syntax.h"

namespace tessera::emulator {

bool is_call(const syntax::Instruction& instruction);

/// call (results), name, (arguments), table: what is there of it.
struct CallParts {
  const syntax::Operand* results = nullptr;
  const syntax::Operand* target = nullptr;  ///< a function's name, or a register
  const syntax::Operand* arguments = nullptr;
  bool is_indirect = false;  ///< a prototype or a list of targets follows
};
CallParts parts_of(const syntax::Instruction& call);

class CallGraph {
 public:
  using Function = syntax::Function;
  explicit CallGraph(const syntax::Module& module);

  /// A function with a body; nullptr: none has this name.
  const Function* find(std::string_view name) const;
  /// It calls itself, perhaps through others, or lies between two that do; or it uses alloca, whose memory must go when
  /// it returns.
  bool needs_frame(const Function& function) const { return needs_frame_.contains(&function); }
  bool uses_alloca(const Function& function) const { return nodes_.at(&function).has_alloca; }
  /// What an entry reaches: the functions that need a frame, or all of them (`all`), then, where one reaches an
  /// indirect call, every function of the module whose address is taken and what those reach.
  std::vector<const Function*> out_of_line(const Function& entry, bool all) const;

 private:
  struct Node {
    std::vector<const Function*> callees;
    bool has_indirect_call = false;
    bool has_alloca = false;
  };
  void read(const Function& function);
  void take_address(std::string_view name);
  void find_cycles();

  std::unordered_map<std::string_view, const Function*> by_name_;
  std::unordered_map<const Function*, Node> nodes_;
  std::vector<const Function*> address_taken_;
  std::unordered_set<const Function*> needs_frame_;
};

}  // namespace tessera::emulator
