// What the assembler leaves out of a kernel. Sums of a register and a constant that are nothing but addresses: a load
// or a store adds the constant itself. And what belongs to the turns of loops that it unrolls: a block that branches to
// its own beginning, counts by a constant, and has few instructions. So it is in the machine code of products in fp32:
// 22 and 54 instructions four times, 90 and more once; where the step is a register, never. Which loops are unrolled is
// not documented.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emulator/time/cost.h"

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

void fold_addresses(const Entry& entry, EntryCosts& costs) {
  std::unordered_map<std::uint32_t, bool> is_address;  // by place: and nothing else
  const auto use = [&](const Operand& op, bool as_address) {
    if (op.is_immediate || op.is_sink || op.is_destination) return;
    const auto [it, is_new] = is_address.try_emplace(op.offset, as_address);
    if (!is_new) it->second = it->second && as_address;
  };
  for (const Instruction& in : entry.code) {
    const bool is_access = in.opcode.starts_with("ld") || in.opcode.starts_with("st");
    for (int i = 0; i < in.num_operands; ++i) {
      const Operand& op = in.op[i];
      for (int k = 0; op.kind == Operand::Kind::list && k < op.count; ++k) use(op.elements[k], false);
      if (op.kind == Operand::Kind::reg) use(op, false);
      if (op.kind == Operand::Kind::address) use(op, is_access);
    }
  }
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    if (!in.opcode.starts_with("add.") || in.num_operands != 3 || in.guard != kNoGuard) continue;
    if (in.op[0].kind != Operand::Kind::reg || in.op[1].is_immediate || !in.op[2].is_immediate) continue;
    const auto found = is_address.find(in.op[0].offset);
    if (found != is_address.end() && found->second && in.op[0].offset != in.op[1].offset)
      costs.by_pc[pc].kind = CostKind::free;
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
