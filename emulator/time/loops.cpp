// What the assembler leaves out of a kernel. Sums of a register and a constant that are nothing but addresses: a load
// or a store adds the constant itself. And what belongs to the turns of loops that it unrolls: a block that branches to
// its own beginning, counts by a constant, and has few instructions. So it is in the machine code of products in fp32:
// 22 and 54 instructions four times, 90 and more once; where the step is a register, never. Which loops are unrolled is
// not documented.
#include <cstdint>
#include <vector>

#include "emulator/time/cost.h"
#include "emulator/time/values.h"

namespace tessera::emulator {
namespace {

constexpr std::size_t kMost = 64;

bool writes(const Instruction& in, std::uint32_t offset) {
  for (int i = 0; i < in.num_operands; ++i)
    if (in.op[i].is_destination && in.op[i].kind != Operand::Kind::list && in.op[i].offset == offset) return true;
  return false;
}

// add r, r, constant
bool is_step(const Instruction& in) {
  if (!in.opcode.starts_with("add.") || in.num_operands != 3 || in.guard != kNoGuard) return false;
  return in.op[0].kind == Operand::Kind::reg && in.op[1].kind == Operand::Kind::reg &&
         in.op[0].offset == in.op[1].offset && in.op[2].is_immediate;
}

// One that waits for other warps or for copies, or branches, ends a block or keeps its place.
bool is_plain(const Instruction& in) {
  for (const char* word : {"bra", "bar", "call", "ret", "exit", "wgmma", "tcgen05", "cp.", "mbarrier", "fence",
                           "membar", "atom", "red", "vote", "shfl", "elect"})
    if (in.opcode.starts_with(word)) return false;
  return in.opcode.find("volatile") == std::string_view::npos;
}

// The counter of the comparison that the branch at `end` looks at: the place of its register.
bool counts(const Entry& entry, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& in = entry.code[i];
    if (!in.opcode.starts_with("setp") || !writes(in, entry.code[end].guard)) continue;
    for (std::size_t k = begin; k < end; ++k)
      if (is_step(entry.code[k]))
        for (int operand = 1; operand < in.num_operands; ++operand)
          if (!in.op[operand].is_immediate && in.op[operand].kind == Operand::Kind::reg &&
              in.op[operand].offset == entry.code[k].op[0].offset)
            return true;
  }
  return false;
}

}  // namespace

void fold_addresses(const Entry& entry, const Chains& chains, EntryCosts& costs) {
  const auto is_address_of = [&](std::uint32_t pc, std::uint32_t place) {
    const Instruction& in = entry.code[pc];
    bool is_access = in.guard != place;
    for (const char* word : {"ld", "st", "mbarrier", "atom", "red."})
      if (in.opcode.starts_with(word)) {
        visit_registers(in, false, [&](const Operand& op) {
          if (op.offset == place && op.kind != Operand::Kind::address) is_access = false;
        });
        return is_access;
      }
    return false;
  };
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    if (!in.opcode.starts_with("add.") || in.num_operands != 3 || in.guard != kNoGuard) continue;
    if (in.op[0].kind != Operand::Kind::reg || in.op[1].is_immediate || !in.op[2].is_immediate) continue;
    const Chains::Uses& uses = chains.uses(pc, in.op[0].offset);
    bool is_address = !uses.escapes && !uses.by.empty() && in.op[0].offset != in.op[1].offset;
    for (const std::uint32_t by : uses.by) is_address = is_address && is_address_of(by, in.op[0].offset);
    if (is_address) costs.by_pc[pc].kind = CostKind::free;
  }
}

void find_loops(const Entry& entry, EntryCosts& costs) {
  std::vector<bool> is_target(entry.code.size() + 1);
  for (const Instruction& in : entry.code)
    for (int i = 0; i < in.num_operands; ++i)
      if (in.op[i].kind == Operand::Kind::label && static_cast<std::size_t>(in.op[i].value) < is_target.size())
        is_target[static_cast<std::size_t>(in.op[i].value)] = true;
  for (std::size_t end = 0; end < entry.code.size(); ++end) {
    const Instruction& branch = entry.code[end];
    if (!branch.opcode.starts_with("bra") || branch.guard == kNoGuard || branch.num_operands == 0) continue;
    const auto begin = static_cast<std::size_t>(branch.op[0].value);
    if (branch.op[0].kind != Operand::Kind::label || begin >= end || end - begin >= kMost) continue;
    bool is_one_block = true;
    for (std::size_t i = begin; i < end; ++i)
      is_one_block = is_one_block && is_plain(entry.code[i]) && (i == begin || !is_target[i]);
    if (!is_one_block || !counts(entry, begin, end)) continue;
    for (std::size_t i = begin; i <= end; ++i) {
      InstructionCost& cost = costs.by_pc[i];
      cost.loop = costs.num_loops;
      cost.is_back_edge = i == end;
      cost.is_step = i == end || is_step(entry.code[i]) ||
                     (entry.code[i].opcode.starts_with("setp") && writes(entry.code[i], branch.guard));
    }
    ++costs.num_loops;
  }
}

}  // namespace tessera::emulator
