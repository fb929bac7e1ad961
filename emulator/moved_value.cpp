#include "emulator/moved_value.h"

#include <algorithm>
#include <vector>

#include "emulator/isa.h"

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
    if (name == "mov") return true;
    if (name == "and") return is_replaced || in.op[1].is_immediate || in.op[2].is_immediate;
    if (name == "or") return is_replaced;
    return name == "bfi" && find(in.op[2]) != nullptr && find(in.op[1]) == nullptr;
  }

  std::vector<Holder> holders_;
};

}  // namespace

bool is_only_moved(const Entry& entry, std::uint32_t pc) {
  Search search(entry.code[pc]);
  const std::size_t end = std::min(entry.code.size(), pc + 1 + kFarthest);
  for (std::size_t i = pc + 1; i < end && !search.is_over(); ++i)
    if (!search.follow(entry.code[i])) return false;
  return true;
}

}  // namespace tessera::emulator
