#include "emulator/findings/moved_value.h"

#include <algorithm>
#include <vector>

#include "emulator/machine.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator {
namespace {

constexpr std::size_t kFarthest = 4096;  // instructions behind the load

/// A register that holds the value.
struct Holder {
  std::uint32_t offset = 0;
  bool has_bits_replaced = false;
};

bool is_value(const Operand& op) { return op.kind == Operand::Kind::reg; }

template <class F>
void for_each(const Operand& op, F f) {
  f(op);
  for (int i = 0; i < op.count; ++i) f(op.elements[i]);
}

bool names_other_memory(std::string_view opcode) {
  return opcode.find(".global") != std::string_view::npos || opcode.find(".shared") != std::string_view::npos;
}

class Search {
 public:
  explicit Search(const Instruction& load) {
    for_each(load.op[0], [&](const Operand& op) {
      if (is_value(op)) holders_.push_back({op.offset, false});
    });
  }
  bool is_over() const { return holders_.empty(); }
  bool met_selp() const { return met_selp_; }

  /// False: the instruction computes with the value.
  bool follow(const Instruction& in) {
    bool is_read = false, is_replaced = true;
    for (int i = 0; i < in.num_operands; ++i)
      for_each(in.op[i], [&](const Operand& op) {
        const Holder* const holder = find(op);
        if (holder == nullptr || op.is_destination) return;
        is_read = true;
        is_replaced = is_replaced && holder->has_bits_replaced;
      });
    if (is_read && !may_read(in, is_replaced)) return false;
    const std::string_view name = in.form->mnemonic;
    const bool moves_on = is_read && name != "st";
    met_selp_ = met_selp_ || (is_read && name == "selp");
    for (int i = 0; i < in.num_operands; ++i)
      for_each(in.op[i], [&](const Operand& op) {
        if (!op.is_destination || !is_value(op)) return;
        if (in.guard == kNoGuard)
          std::erase_if(holders_, [&](const Holder& holder) { return holder.offset == op.offset; });
        if (moves_on) holders_.push_back({op.offset, is_replaced || name == "and" || name == "bfi"});
      });
    return true;
  }

 private:
  const Holder* find(const Operand& op) const {
    if (!is_value(op) && op.kind != Operand::Kind::address) return nullptr;
    const auto it =
        std::find_if(holders_.begin(), holders_.end(), [&](const Holder& h) { return h.offset == op.offset; });
    return it == holders_.end() ? nullptr : &*it;
  }

  bool may_read(const Instruction& in, bool is_replaced) const {
    const std::string_view name = in.form->mnemonic;
    // As the value, not as the address, and into memory of the thread's own as far as the text says.
    if (name == "st") return find(in.op[0]) == nullptr && !names_other_memory(in.opcode);
    if (name == "mov" || name == "selp") return true;
    if (name == "and") return is_replaced || in.op[1].is_immediate || in.op[2].is_immediate;
    if (name == "or") return is_replaced;
    return name == "bfi" && find(in.op[2]) != nullptr && find(in.op[1]) == nullptr;
  }

  std::vector<Holder> holders_;
  bool met_selp_ = false;
};

/// Lanes of `lanes` in which the instruction hands the value of a source register on; `is_used`: it computes with it.
Mask moved_lanes(const Warp& w, const Instruction& in, std::uint32_t offset, Mask lanes, bool& is_used) {
  const std::string_view name = in.form->mnemonic;
  Mask moved = 0;
  for (int i = 0; i < in.num_operands; ++i)
    for_each(in.op[i], [&](const Operand& op) {
      const bool is_register = is_value(op) || op.kind == Operand::Kind::address;
      if (!is_register || op.is_destination || op.is_immediate || op.offset != offset) return;
      const bool is_stored = name == "st" && i != 0 && !names_other_memory(in.opcode);
      if (name == "mov")
        moved |= lanes;
      else if (name == "selp" && i <= 2)
        moved |= lanes & (i == 1 ? w.read_predicate(in.op[3]) : ~w.read_predicate(in.op[3]));
      else if (!is_stored)
        is_used = true;
    });
  return moved;
}

template <class F>
void for_destinations(const Instruction& in, F f) {
  for (int i = 0; i < in.num_operands; ++i)
    for_each(in.op[i], [&](const Operand& op) {
      if (op.is_destination && is_value(op)) f(op);
    });
}

}  // namespace

ValueUse use_of_value(const Entry& entry, std::uint32_t pc) {
  Search search(entry.code[pc]);
  const std::size_t end = std::min(entry.code.size(), pc + 1 + kFarthest);
  for (std::size_t i = pc + 1; i < end && !search.is_over(); ++i)
    if (!search.follow(entry.code[i])) return search.met_selp() ? ValueUse::selected : ValueUse::computed;
  return ValueUse::moved;
}

void follow_value(Warp& w, const Instruction& load, int lane, EmulatorFinding finding) {
  const auto shared = std::make_shared<EmulatorFinding>(std::move(finding));
  for_destinations(load, [&](const Operand& op) { w.undecided.push_back({op.offset, Mask{1} << lane, shared}); });
  w.watches_registers = true;
}

void follow_values(Warp& w, const Instruction& in, Mask active) {
  std::vector<UndecidedValue> moved;
  for (UndecidedValue& value : w.undecided) {
    const Mask lanes = value.lanes & active;
    if (lanes == 0) continue;
    bool is_used = false;
    const Mask handed_on = moved_lanes(w, in, value.offset, lanes, is_used);
    if (is_used) w.launch->findings.add(*value.finding);
    for_destinations(in, [&](const Operand& op) {
      if (handed_on != 0) moved.push_back({op.offset, handed_on, value.finding});
      if (op.offset == value.offset) value.lanes &= ~active;
    });
    if (is_used) value.lanes &= ~active;
  }
  std::erase_if(w.undecided, [](const UndecidedValue& value) { return value.lanes == 0; });
  w.undecided.insert(w.undecided.end(), moved.begin(), moved.end());
  w.update_watch();
}

}  // namespace tessera::emulator
