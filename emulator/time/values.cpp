// What the assembler computes once, and what it does not compute. Within a basic block an operation on the same values
// as one before it is that one: inline assembly that stands there again and again is one instruction of machine code.
// And halves of a register: who adds and multiplies pairs of halves takes either half of an operand for both (.H0_H0,
// .H1_H1), and who takes one half finds it where it is, so to take registers apart and to double a half is nothing.
#include "emulator/time/values.h"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/time/cost.h"
#include "emulator/time/opcode_words.h"

namespace tessera::emulator {
namespace {

// {low, high} of 16 bits each.
bool is_of_halves(const Operand& op) {
  return op.kind == Operand::Kind::list && op.count == 2 && op.elements[0].bytes == 2 && op.elements[1].bytes == 2;
}

// Arithmetic whose operands have either half for both.
bool takes_halves(std::string_view opcode) {
  return starts_with_any(opcode, {"fma.", "mul.", "add.", "sub."}) && opcode.find("f16x2") != std::string_view::npos;
}

bool is_move_of_halves(const Instruction& in) {
  return in.opcode.starts_with("mov.b32") && in.num_operands == 2 && (is_of_halves(in.op[0]) || is_of_halves(in.op[1]));
}

/// Values of registers in a basic block, by number; a register that is written gets another one.
class Values {
 public:
  void begin_block() {
    of_register_.clear();
    made_by_.clear();
  }
  std::uint32_t of(const Operand& op) {
    if (op.is_immediate) return of_key("#" + std::to_string(op.value));
    const auto [it, is_new] = of_register_.try_emplace(op.offset, next_);
    if (is_new) ++next_;
    return it->second;
  }
  /// The number of what this text says; a new one where it was not there before.
  std::uint32_t of_key(const std::string& key) {
    const auto [it, is_new] = made_by_.try_emplace(key, next_);
    if (is_new) ++next_;
    return it->second;
  }
  bool knows(const std::string& key) const { return made_by_.contains(key); }
  void write(std::uint32_t offset, std::uint32_t value) { of_register_[offset] = value; }
  void forget(const Operand& op) {
    if (op.is_immediate || op.is_sink) return;
    for (int i = 0; op.kind == Operand::Kind::list && i < op.count; ++i) forget(op.elements[i]);
    if (op.is_destination && op.kind != Operand::Kind::list) of_register_[op.offset] = next_++;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> of_register_{};
  std::map<std::string, std::uint32_t> made_by_{};
  std::uint32_t next_ = 0;
};

// The operation and the values that it takes; empty: it may give something else the next time.
std::string key_of(const Instruction& in, const InstructionCost& cost, Values& values) {
  const bool is_pure = (cost.kind == CostKind::plain || cost.kind == CostKind::free) && in.guard == kNoGuard;
  if (!is_pure || in.num_operands < 2 || in.op[0].kind != Operand::Kind::reg || in.op[0].is_sink) return {};
  const bool is_arithmetic = cost.time.pipe == Pipe::fma || cost.time.pipe == Pipe::alu || cost.time.pipe == Pipe::mufu;
  if ((!is_arithmetic && cost.kind != CostKind::free) || in.opcode.find(".cc") != std::string_view::npos ||
      starts_with_any(in.opcode, {"vote", "addc", "subc", "madc", "match", "activemask"}))
    return {};
  std::string key(in.opcode);
  for (int i = 1; i < in.num_operands; ++i) {
    const Operand& op = in.op[i];
    if (op.is_destination || (op.kind != Operand::Kind::reg && op.kind != Operand::Kind::list)) return {};
    for (int k = 0; op.kind == Operand::Kind::list && k < op.count; ++k)
      key += ' ' + std::to_string(values.of(op.elements[k]));
    if (op.kind == Operand::Kind::reg) key += ' ' + std::to_string(values.of(op));
  }
  return key;
}

}  // namespace

std::vector<bool> block_begins(const Entry& entry) {
  std::vector<bool> begins(entry.code.size() + 1);
  begins[0] = true;
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    for (int i = 0; i < in.num_operands; ++i)
      if (in.op[i].kind == Operand::Kind::label && static_cast<std::size_t>(in.op[i].value) < begins.size())
        begins[static_cast<std::size_t>(in.op[i].value)] = begins[pc + 1] = true;
    if (starts_with_any(in.opcode, {"bra", "brx", "ret", "exit", "call"})) begins[pc + 1] = true;
  }
  return begins;
}

Chains::Chains(const Entry& entry) {
  const std::vector<bool> begins = block_begins(entry);
  std::unordered_map<std::uint32_t, std::uint32_t> current;         // in the block: who wrote the place last
  std::vector<std::pair<std::uint32_t, std::uint32_t>> at_the_end;  // place and pc
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    if (begins[pc]) {
      at_the_end.insert(at_the_end.end(), current.begin(), current.end());
      current.clear();
    }
    const auto read = [&](std::uint32_t place) {
      const auto found = current.find(place);
      if (found == current.end()) {
        exposed_.insert(place);
        return;
      }
      std::vector<std::uint32_t>& by = uses_[key(found->second, place)].by;
      if (by.empty() || by.back() != pc) by.push_back(static_cast<std::uint32_t>(pc));
      definitions_[key(pc, place)] = found->second;
    };
    if (in.guard != kNoGuard) read(in.guard);
    visit_registers(in, false, [&](const Operand& op) { read(op.offset); });
    visit_registers(in, true, [&](const Operand& op) {
      if (in.guard != kNoGuard) read(op.offset);  // lanes keep what they had
      current[op.offset] = static_cast<std::uint32_t>(pc);
    });
  }
  at_the_end.insert(at_the_end.end(), current.begin(), current.end());
  for (const auto& [place, pc] : at_the_end)
    if (exposed_.contains(place)) uses_[key(pc, place)].escapes = true;
}

const Chains::Uses& Chains::uses(std::size_t pc, std::uint32_t place) const {
  static const Uses kNobody;
  const auto found = uses_.find(key(pc, place));
  return found != uses_.end() ? found->second : kNobody;
}

std::uint32_t Chains::definition(std::size_t pc, std::uint32_t place) const {
  const auto found = definitions_.find(key(pc, place));
  return found != definitions_.end() ? found->second : kNone;
}

void fold_halves(const Entry& entry, const Chains& chains, EntryCosts& costs) {
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    if (!is_move_of_halves(in)) continue;
    bool is_free = is_of_halves(in.op[0]);
    if (is_of_halves(in.op[1]) && in.op[0].kind == Operand::Kind::reg && !in.op[1].elements[0].is_immediate &&
        in.op[1].elements[0].offset == in.op[1].elements[1].offset) {
      const Chains::Uses& uses = chains.uses(pc, in.op[0].offset);
      is_free = !uses.escapes;
      for (const std::uint32_t by : uses.by) is_free = is_free && takes_halves(entry.code[by].opcode);
    }
    if (is_free) costs.by_pc[pc].kind = CostKind::free;
  }
}

void find_repeated(const Entry& entry, EntryCosts& costs) {
  const std::vector<bool> begins = block_begins(entry);
  Values values;
  std::unordered_map<std::uint32_t, std::uint32_t> place_of;  // by value: where it was first
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    InstructionCost& cost = costs.by_pc[pc];
    if (begins[pc]) {
      values.begin_block();
      place_of.clear();
    }
    // Halves of the same register are the same.
    if (is_move_of_halves(in) && is_of_halves(in.op[0]) && in.op[1].kind == Operand::Kind::reg) {
      const std::string whole = std::to_string(values.of(in.op[1]));
      for (int half = 0; half < 2; ++half)
        if (!in.op[0].elements[half].is_sink)
          values.write(in.op[0].elements[half].offset, values.of_key("half " + std::to_string(half) + ' ' + whole));
      continue;
    }
    if (in.opcode.starts_with("mov.") && in.num_operands == 2 && in.guard == kNoGuard &&
        in.op[0].kind == Operand::Kind::reg && in.op[1].kind == Operand::Kind::reg) {
      values.write(in.op[0].offset, values.of(in.op[1]));
      continue;
    }
    const std::string key = key_of(in, cost, values);
    if (key.empty()) {
      for (int i = 0; i < in.num_operands; ++i) values.forget(in.op[i]);
      continue;
    }
    const bool is_repeated = values.knows(key) && cost.kind == CostKind::plain;
    const std::uint32_t value = values.of_key(key);
    values.write(in.op[0].offset, value);
    const std::uint32_t own = costs.places[cost.first + cost.sources];
    const auto [first, is_first] = place_of.try_emplace(value, own);
    if (!is_repeated || is_first) continue;
    cost.kind = CostKind::free;  // there when the first one is
    cost.first = static_cast<std::uint32_t>(costs.places.size());
    cost.sources = cost.destinations = 1;
    const std::uint32_t before = first->second;
    costs.places.insert(costs.places.end(), {before, own});
  }
}

}  // namespace tessera::emulator
