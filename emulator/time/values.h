// Which instruction needs what another one gives, as far as basic blocks tell: for what the assembler makes of them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "emulator/syntax/program.h"

namespace tessera::emulator {

/// Definitions and their uses. Registers that live in one basic block share places of the register file, so a place
/// says which register it is in its block alone; who reads a place that its block has not written yet has it from
/// another one.
class Chains {
 public:
  struct Uses {
    std::vector<std::uint32_t> by{};  ///< pcs, ascending, in the block
    bool escapes = false;             ///< another block may read it
    bool is_only(std::uint32_t pc) const { return !escapes && by.size() == 1 && by.front() == pc; }
  };
  explicit Chains(const Entry& entry);

  /// Of what the instruction writes there.
  const Uses& uses(std::size_t pc, std::uint32_t place) const;
  /// The instruction of the block that wrote what this one reads there; kNone: another block's.
  std::uint32_t definition(std::size_t pc, std::uint32_t place) const;
  bool crosses_blocks(std::uint32_t place) const { return exposed_.contains(place); }

  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

 private:
  static std::uint64_t key(std::size_t pc, std::uint32_t place) { return std::uint64_t{pc} << 32 | place; }
  std::unordered_map<std::uint64_t, Uses> uses_{};
  std::unordered_map<std::uint64_t, std::uint32_t> definitions_{};
  std::unordered_set<std::uint32_t> exposed_{};
};

/// Calls `visit` with each register or predicate that the instruction reads, or writes.
template <class F>
void visit_registers(const Instruction& in, bool written, F&& visit) {
  const auto one = [&](const Operand& op, bool is_destination) {
    if (!op.is_immediate && !op.is_sink && is_destination == written) visit(op);
  };
  for (int i = 0; i < in.num_operands; ++i) {
    const Operand& op = in.op[i];
    if (op.kind == Operand::Kind::label || op.kind == Operand::Kind::none) continue;
    if (op.kind == Operand::Kind::list)
      for (int k = 0; k < op.count; ++k) one(op.elements[k], op.elements[k].is_destination);
    else
      one(op, op.is_destination);
  }
}

/// By pc: where each basic block begins.
std::vector<bool> block_begins(const Entry& entry);

}  // namespace tessera::emulator
