// Waits on mbarriers whose answer nobody looks at. PTX ISA, "mbarrier.try_wait": false says that the phase was not seen
// to end, and that nothing is ordered; a thread that goes on all the same has waited for nothing.
//
// Found once per entry, from each wait forward over all paths: where its predicate goes by instructions that only
// compute (inline assembly makes a number of it with selp), until one of them is used otherwise: by a guard, a branch,
// a store. Whatever is not known to be plain arithmetic counts as a use, so a wait is called ignored only where no run
// can depend on its answer.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <vector>

#include "emulator/findings/control_flow.h"
#include "emulator/memory/mbarrier.h"
#include "emulator/syntax/resolver.h"

namespace tessera::emulator {
namespace {

using Registers = std::vector<std::uint32_t>;

constexpr std::size_t kMostSteps = 20000;  // beyond, the answer counts as used

bool is_arithmetic(std::string_view name) {
  constexpr std::string_view kKnown[] = {"mov", "selp", "setp", "set", "and", "or", "xor", "not", "cvt", "add", "sub"};
  return std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown);
}

template <class F>
void for_registers(const Instruction& in, F f) {
  const auto one = [&](const Operand& op) {
    if (op.kind == Operand::Kind::reg || op.kind == Operand::Kind::predicate || op.kind == Operand::Kind::address)
      f(op);
  };
  for (int i = 0; i < in.num_operands; ++i) {
    one(in.op[i]);
    for (int j = 0; j < in.op[i].count; ++j) one(in.op[i].elements[j]);
  }
}

class AnswerSearch {
 public:
  explicit AnswerSearch(const Entry& entry) : entry_(entry) {}

  bool is_ignored(std::uint32_t wait) {
    const Operand& answer = entry_.code[wait].op[0];
    if (answer.is_sink) return true;
    reach(wait + 1, {answer.offset});
    for (std::size_t steps = 0; !left_.empty(); ++steps) {
      if (steps == kMostSteps) return false;
      const std::uint32_t pc = left_.front();
      left_.pop_front();
      Registers holders = holders_[pc];
      const Instruction& in = entry_.code[pc];
      if (is_used(in, holders)) return false;
      if (holders.empty()) continue;
      for_labels(in, [&](std::size_t target) { reach(static_cast<std::uint32_t>(target), holders); });
      if (!ends_path(in)) reach(pc + 1, holders);
    }
    return true;
  }

 private:
  static bool has(const Registers& holders, std::uint32_t id) {
    return std::find(holders.begin(), holders.end(), id) != holders.end();
  }

  void reach(std::uint32_t pc, const Registers& holders) {
    if (pc >= entry_.code.size()) return;
    Registers& known = holders_[pc];
    const std::size_t before = known.size();
    for (const std::uint32_t id : holders)
      if (!has(known, id)) known.push_back(id);
    if (known.size() > before) left_.push_back(pc);
  }

  // Otherwise `holders` becomes what holds the answer behind the instruction.
  static bool is_used(const Instruction& in, Registers& holders) {
    if (in.guard != kNoGuard && has(holders, in.guard)) return true;
    bool is_read = false;
    for_registers(in, [&](const Operand& op) { is_read = is_read || (!op.is_destination && has(holders, op.offset)); });
    if (is_read && !is_arithmetic(in.form->mnemonic)) return true;
    for_registers(in, [&](const Operand& op) {
      if (!op.is_destination) return;
      if (is_read && !has(holders, op.offset)) holders.push_back(op.offset);
      if (!is_read && in.guard == kNoGuard) std::erase(holders, op.offset);
    });
    return false;
  }

  const Entry& entry_;
  std::unordered_map<std::uint32_t, Registers> holders_{};  // by pc: what may hold the answer before it
  std::deque<std::uint32_t> left_{};
};

}  // namespace

void find_ignored_waits(Entry& entry) {
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const std::string_view name = entry.code[pc].form->mnemonic;
    if (name != "mbarrier.try_wait" && name != "mbarrier.test_wait") continue;
    if (AnswerSearch(entry).is_ignored(static_cast<std::uint32_t>(pc))) entry.code[pc].flags |= kWaitIsIgnored;
  }
}

}  // namespace tessera::emulator
