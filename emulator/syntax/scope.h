// Names while an entry is resolved: registers, variables and labels in nested scopes. PTX ISA, "Identifiers".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/syntax/syntax.h"

namespace tessera::emulator {

/// What a name of a variable stands for.
struct Symbol {
  syntax::Space space = syntax::Space::global;
  std::uint64_t address = 0;     ///< in its own space; shared: from the first byte
  bool is_dynamic_smem = false;  ///< `.extern .shared`: its place is known when all static variables are
  /// A shared variable of the module: an entry has it where it, or what it calls, names it; only then it has a place.
  const syntax::Variable* module_shared = nullptr;
  bool is_in_frame = false;  ///< address counts from the frame of the function that is being resolved
};

struct NamedRegister {
  std::uint32_t id = 0;  ///< virtual register
  Type type = Type::b32;
  int vector = 1;  ///< so many registers in a row
};

class Scopes {
 public:
  /// A scope's labels are known on entry, since a branch may come before its label.
  /// A function's body sees its own scopes and the module's, not its caller's.
  void open(bool is_function = false) {
    scopes_.emplace_back();
    scopes_.back().is_function = is_function;
  }
  void close() { scopes_.pop_back(); }
  std::size_t depth() const { return scopes_.size(); }

  // Each answers false when the innermost scope has the name already.
  bool add_register(std::string_view name, NamedRegister reg) {
    return scopes_.back().registers.emplace(name, reg).second;
  }
  bool add_range(std::string_view prefix, std::int64_t count, NamedRegister first) {
    return scopes_.back().ranges.emplace(prefix, Range{first, count}).second;
  }
  bool add_symbol(std::string_view name, Symbol symbol) { return scopes_.back().symbols.emplace(name, symbol).second; }
  bool add_label(std::string_view name, std::uint32_t pc) { return scopes_.back().labels.emplace(name, pc).second; }
  void add_targets(std::string_view name, const std::vector<std::string_view>* labels) {
    scopes_.back().targets[name] = labels;
  }

  /// A scalar register, or an element of a vector: `mx.y`.
  std::optional<NamedRegister> find_register(std::string_view name) const;
  std::optional<NamedRegister> find_vector(std::string_view name) const;
  const Symbol* find_symbol(std::string_view name) const;
  std::optional<std::uint32_t> find_label(std::string_view name) const;
  const std::vector<std::string_view>* find_targets(std::string_view name) const;

 private:
  std::optional<NamedRegister> find_named(std::string_view name) const;
  struct Range {
    NamedRegister first;
    std::int64_t count = 0;
  };
  struct Scope {
    bool is_function = false;
    std::unordered_map<std::string_view, NamedRegister> registers;
    std::unordered_map<std::string_view, Range> ranges;
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, std::uint32_t> labels;
    std::unordered_map<std::string_view, const std::vector<std::string_view>*> targets;
  };
  /// Calls f for the scopes that are visible, innermost first, until it answers true.
  template <class F>
  void search(F f) const {
    for (std::size_t i = scopes_.size(); i-- > 0;) {
      if (f(scopes_[i])) return;
      if (scopes_[i].is_function) i = 1;
    }
  }

  std::vector<Scope> scopes_;
};

}  // namespace tessera::emulator
