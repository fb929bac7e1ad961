// The instruction table: one row per instruction form. Parser, validator, execution, tests and docs/ptx-support.md walk
// the same rows. PTX ISA, "Instruction Set".
//
// An opcode is split at its dots: the mnemonic (the longest one that the table knows), then words that are types, in
// order, and words that are modifiers, as a set: authors order them differently. An instruction belongs to a row when
// its types fit the row's slots one by one, each modifier stands in exactly one of the row's groups, and every required
// group has its word. Nothing has a default that is not written here.
//
//   types      "f32|f64 s32": two slots; the first is f32 or f64
//   modifiers  "[ftz] rn|rz [L1::evict_first|L1::evict_last]": groups; brackets make one optional; # is a number
//   operands   see operand_patterns.cpp: "d s s" = destination and two sources of type slot 0
//
// A row with a refusal says by name what is not executed, and why: such an instruction loads, whatever its operands,
// and ends the launch when it is reached. In it, types "*" and modifiers "*" stand for any.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "emulator/syntax/program.h"

namespace tessera::emulator {

/// An instruction that fits a form, while its handler is chosen.
struct Decoded {
  const Form* form = nullptr;
  std::array<Type, 6> types{};
  int num_types = 0;
  std::array<std::string_view, 16> modifiers{};
  int num_modifiers = 0;
  std::array<std::uint32_t, 4> numbers{};  ///< what # matched, in the order of the opcode
  int num_numbers = 0;
  std::string_view target;    ///< of the module
  Instruction* in = nullptr;  ///< operands are in place; flags and number are the binder's to set
  /// Where a binder that refuses may say why, in one sentence; null: nobody asks.
  std::string* why = nullptr;

  Type type(int slot = 0) const { return types[static_cast<std::size_t>(slot)]; }
  bool has(std::string_view modifier) const {
    for (int i = 0; i < num_modifiers; ++i)
      if (modifiers[static_cast<std::size_t>(i)] == modifier) return true;
    return false;
  }
};

/// Chooses the handler; nullptr: no such form with these operands.
using Binder = Handler (*)(const Decoded& decoded);

struct Form {
  std::string_view mnemonic;
  std::string_view types;
  std::string_view modifiers;
  std::string_view operands;
  std::string_view target;   ///< the least target: "sm_70"; "sm_90a": that target's features
  std::string_view section;  ///< of the PTX ISA
  Binder bind;
  std::string_view refusal = {};  ///< not empty: why it is not executed; bind is not called
};

std::span<const Form> isa() noexcept;

/// Finds the row of an opcode. On failure returns false and says in `problem` what is wrong, in one sentence.
bool find_form(std::string_view opcode, Decoded& out, std::string& problem);

/// 90 of "sm_90a"; 0 when it is no such name.
int target_number(std::string_view target);

/// Whether code for `form_target` may run on `target`: sm_90a needs exactly that, sm_80 needs at least that.
bool target_has(std::string_view target, std::string_view form_target);

}  // namespace tessera::emulator
