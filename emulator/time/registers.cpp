// How many registers a thread has, which PTX does not say: as many words as are alive at the same time somewhere in the
// kernel. A pass goes from the last instruction to the first with the set of what is read later on; what is alive at a
// label is kept for the branches to it, and passes repeat until those sets stay as they are (loops).
#include "emulator/time/registers.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

namespace tessera::emulator {
namespace {

class Alive {
 public:
  explicit Alive(const Entry& entry) : entry_(entry) {}

  double most() {
    for (std::size_t pc = 0; pc < entry_.code.size(); ++pc)
      if (const auto target = target_of(pc); target < entry_.code.size()) at_label_[target];
    double most = 0;
    for (bool changes = true; changes;) {
      changes = false;
      most = 0;
      Set alive;
      double words = 0;
      for (std::size_t pc = entry_.code.size(); pc-- > 0;) {
        const Instruction& in = entry_.code[pc];
        const bool is_branch = in.opcode.starts_with("bra");
        const bool ends = in.opcode.starts_with("ret") || in.opcode.starts_with("exit") || is_branch;
        if (ends && in.guard == kNoGuard) alive.clear(), words = 0;
        if (const auto target = target_of(pc); target < entry_.code.size())
          for (const auto& [offset, size] : at_label_[target]) words += alive.emplace(offset, size).second ? size : 0;
        const bool adds = in.opcode.starts_with("wgmma.mma_async");  // its first operand is read too
        for (int i = 0; i < in.num_operands; ++i)
          if (!adds || i > 0)
            visit(in.op[i], true, [&](std::uint32_t offset, double size) {
              if (in.guard == kNoGuard) words -= alive.erase(offset) > 0 ? size : 0;
            });
        for (int i = 0; i < in.num_operands; ++i)
          visit(in.op[i], adds && i == 0,
                [&](std::uint32_t offset, double size) { words += alive.emplace(offset, size).second ? size : 0; });
        most = std::max(most, words);
        if (const auto label = at_label_.find(pc); label != at_label_.end() && label->second.size() != alive.size()) {
          label->second = alive;  // sets only grow
          changes = true;
        }
      }
    }
    return most;
  }

 private:
  using Set = std::unordered_map<std::uint32_t, double>;  ///< words, by place in the register file

  std::size_t target_of(std::size_t pc) const {
    const Instruction& in = entry_.code[pc];
    if (!in.opcode.starts_with("bra") || in.num_operands == 0 || in.op[0].kind != Operand::Kind::label)
      return entry_.code.size();
    return static_cast<std::size_t>(in.op[0].value);
  }

  template <class Visit>
  static void visit(const Operand& op, bool destinations, Visit&& f) {
    if (op.is_immediate || op.is_sink) return;
    if (op.kind == Operand::Kind::list) {
      for (int i = 0; i < op.count; ++i) visit(op.elements[i], destinations, f);
    } else if ((op.kind == Operand::Kind::reg || op.kind == Operand::Kind::address) &&
               op.is_destination == destinations && op.bytes > 0) {
      f(op.offset, (op.bytes + 3) / 4);  // predicates have registers of their own
    }
  }

  const Entry& entry_;
  std::map<std::size_t, Set> at_label_{};
};

}  // namespace

double registers_alive(const Entry& entry) { return Alive(entry).most(); }

}  // namespace tessera::emulator
