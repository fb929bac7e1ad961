// The resolver's state for one entry; internal to resolver.cpp, operands.cpp and operand_patterns.cpp.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "emulator/syntax/call_graph.h"
#include "emulator/syntax/isa.h"
#include "emulator/syntax/resolver.h"
#include "emulator/syntax/scope.h"
#include "tessera/error.h"

namespace tessera::emulator {

/// Thrown within the resolver after a problem was recorded; caught per statement.
struct ResolveProblem {};

class EntryResolver {
 public:
  EntryResolver(const Program& program, const CallGraph& graph, const syntax::Function& function, Entry& entry,
                LoadOptions options)
      : program_(program),
        graph_(graph),
        function_(function),
        entry_(entry),
        options_(options),
        diagnostics_(entry.problems) {}
  void run();

 private:
  // resolver.cpp: statements.
  void declare_module_variables();
  void declare_parameters();
  void declare_registers(const syntax::Statement& statement);
  void declare_variable(const syntax::Statement& statement);
  void resolve_body(const syntax::Function& function);
  void collect_labels(const syntax::Function& function, std::size_t from);
  void resolve_instruction(const syntax::Statement& statement);
  syntax::Instruction with_vectors_listed(const syntax::Instruction& instruction, std::deque<std::string>& names);
  Instruction& new_instruction(const syntax::Statement& statement);
  std::optional<Symbol> use_symbol(std::string_view name);
  void place_shared_variables();
  [[noreturn]] void fail(syntax::Place place, std::string message);
  std::uint32_t new_register(Type type, bool pinned);

  // resolver_call.cpp: functions, expanded where they are called.
  bool resolve_call(const syntax::Statement& statement);
  bool resolve_return(const syntax::Statement& statement);
  void expand_call(const syntax::Statement& statement, const syntax::Function& callee, const syntax::Operand* results,
                   const syntax::Operand* arguments);
  void bind_builtin(const syntax::Statement& statement, std::string_view name, const syntax::Operand* results,
                    const syntax::Operand* arguments);
  void add_branch(const syntax::Statement& statement, std::uint32_t target, bool when_guard_fails);
  void bind_call(const syntax::Statement& statement, const CallParts& parts);
  void bind_guard(const syntax::Statement& statement, Instruction& in);
  Operand parameter_address(const syntax::Operand& named);
  void bind_refusal(const syntax::Statement& statement, std::string why);
  bool is_expanded(const syntax::Function& callee) const { return !out_of_line_.contains(&callee); }
  void find_out_of_line();
  void resolve_out_of_line(OutOfLine& made);
  std::uint64_t emitted(const syntax::Statement& statement);
  std::uint64_t emitted(const syntax::Function& function);

  // operand_patterns.cpp: one operand after the pattern in the form.
  void bind_operands(const syntax::Instruction& syntax, syntax::Place place, Decoded& decoded, Instruction& in);
  void bind_one(std::string_view pattern, const syntax::Operand& syntax, const Decoded& decoded,
                std::vector<Operand>& out);
  Operand bind_value_or_predicate(const syntax::Operand& syntax, Type type, char width, const Decoded& decoded);
  Operand bind_value_or_list(const syntax::Operand& syntax, Type type, char width, bool is_destination,
                             const Decoded& decoded);
  void bind_pair(const syntax::Operand& syntax, Type type, char width, bool are_predicates, const Decoded& decoded,
                 std::vector<Operand>& out);
  void bind_map_and_coordinates(const syntax::Operand& syntax, const Decoded& decoded, std::vector<Operand>& out);
  Operand bind_targets(const syntax::Operand& syntax);
  Operand bind_number(const syntax::Operand& syntax);

  // operands.cpp: what it stands for.
  Operand bind_value(const syntax::Operand& syntax, Type type, char width, bool is_destination, const Decoded& decoded);
  Operand bind_name(const syntax::Operand& syntax, Type type, char width, bool is_destination, const Decoded& decoded);
  Operand bind_predicate(const syntax::Operand& syntax, bool is_destination);
  Operand bind_address(const syntax::Operand& syntax, const Decoded& decoded);
  Operand bind_list(const syntax::Operand& syntax, Type type, char width, bool is_destination, const Decoded& decoded);
  Operand bind_label(const syntax::Operand& syntax);
  Operand list_of(std::vector<Operand> elements);
  Operand sink(Type type);
  Operand constant(std::uint64_t bits, Type type, ConstantSlot::Relocation relocation);
  Operand symbol_address(const Symbol& symbol, Type type, bool generic);
  Operand frame_address(std::uint64_t offset, int bytes);
  Operand reserved_shared_memory(Type type);
  [[noreturn]] void fail_undeclared(const syntax::Operand& syntax);
  std::uint64_t immediate_bits(const syntax::Operand& syntax, Type type);
  bool special_register(std::string_view name, Type type, Operand& out);

  const Program& program_;
  const CallGraph& graph_;
  const syntax::Function& function_;
  Entry& entry_;
  LoadOptions options_;
  std::vector<Diagnostic>& diagnostics_;
  Scopes scopes_;
  std::vector<VirtualRegister> registers_;
  std::map<std::tuple<std::uint64_t, int, int>, std::uint32_t> constants_;  // bits, bytes, relocation -> register
  std::map<std::string_view, std::uint32_t> specials_;
  std::vector<std::size_t> dynamic_symbols_;  // constants that get the dynamic memory's place added
  std::map<const syntax::Variable*, std::uint64_t> placed_shared_;  // the module's that this entry names
  std::uint64_t shared_bytes_ = 0;
  static constexpr std::uint64_t kNotPlaced = ~std::uint64_t{0};
  std::uint64_t reserved_shared_ = kNotPlaced;  // where %reserved_smem_offset_1 points
  std::uint64_t dynamic_alignment_ = 16;
  std::uint64_t register_bytes_ = 0;
  syntax::Place place_;
  bool names_local_ = false;  // the last instruction's address names a variable in local memory
  /// The calls that are being expanded, and where each returns to.
  struct Call {
    const syntax::Function* function = nullptr;
    std::uint32_t return_pc = 0;
  };
  std::vector<Call> calls_;
  std::map<const syntax::Function*, std::uint32_t> out_of_line_;  // to the index in Entry::functions
  /// The function that is being resolved apart from the entry's body, and what its frame holds so far.
  struct Frame {
    OutOfLine* made = nullptr;
    std::uint64_t bytes = 0;
    std::map<std::tuple<std::uint64_t, int>, std::uint32_t> addresses;  // offset, bytes -> register
  };
  Frame* frame_ = nullptr;
  std::set<const syntax::Function*> unread_;  // whose problems are among the diagnostics
  std::map<const syntax::Function*, std::uint64_t> emitted_;
  std::size_t nesting_ = 0;
};

}  // namespace tessera::emulator
