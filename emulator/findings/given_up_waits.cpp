// Waits on mbarriers that a thread may give up: it asks a number of times, and goes on as if the phase were over. PTX
// ISA, "mbarrier.try_wait": false says no more than "not yet", however often.
//
// Found once per entry. From each wait two walks go forward, one where its answer is false, one where it is true, with
// what follows from the answer by instructions that only compute: so a branch on it takes one way. A walk ends where a
// wait is asked again, the thread ends or traps. Where both come to one instruction that touches memory or meets other
// threads, the thread gets there without having seen the phase end. A wait that only looks ahead is found too: what the
// schedule makes of that (instructions/exec_mbarrier.cpp) does no harm to it.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/findings/control_flow.h"
#include "emulator/memory/mbarrier.h"
#include "emulator/syntax/resolver.h"

namespace tessera::emulator {
namespace {

using Known = std::vector<std::pair<std::uint32_t, std::uint64_t>>;  // registers that have one value

bool is_wait(const Instruction& in) {
  return in.form->mnemonic == "mbarrier.try_wait" || in.form->mnemonic == "mbarrier.test_wait";
}

// Touches memory, or meets other threads.
bool is_act(const Instruction& in) {
  constexpr std::string_view kFamilies[] = {"st",   "ld",      "atom",     "red",   "cp",       "wgmma",
                                            "mma",  "tcgen05", "ldmatrix", "bar",   "stmatrix", "barrier",
                                            "shfl", "vote",    "fence",    "membar"};
  const std::string_view name = in.form->mnemonic;
  const std::string_view family = name.substr(0, name.find('.'));
  return name.starts_with("mbarrier.arrive") ||
         std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

class Walk {
 public:
  /// Each instruction is looked at this often, with values that differ; and so many in all.
  static constexpr int kVisits = 3;
  static constexpr int kSteps = 3000;

  explicit Walk(const Entry& entry) : entry_(entry) {}

  /// The acts that are reached from behind the wait while its answer is this.
  std::vector<std::uint32_t> acts(std::uint32_t wait, bool answer) {
    std::vector<std::uint32_t> found;
    left_.push_back({wait + 1, {{entry_.code[wait].op[0].offset, answer ? 1u : 0u}}});
    for (int step = 0; !left_.empty() && step < kSteps; ++step) {
      auto [pc, known] = std::move(left_.back());
      left_.pop_back();
      if (pc >= entry_.code.size() || visits_[pc]++ >= kVisits) continue;
      const Instruction& in = entry_.code[pc];
      const std::optional<bool> guard = guard_of(in, known);
      const bool is_branch = in.form->mnemonic == "bra";
      if (guard == false) {
        left_.push_back({pc + 1, std::move(known)});
        continue;
      }
      const bool is_asked_again = is_wait(in) && (in.flags & (kWaitIsIgnored | kWaitMayBeGivenUp)) == 0;
      const std::string_view name = in.form->mnemonic;
      if (is_asked_again || name == "trap" || name == "exit" || name == "ret" || name == "call" || name == "brx.idx") {
        if (!guard && in.guard != kNoGuard) left_.push_back({pc + 1, std::move(known)});
        continue;
      }
      if (is_act(in)) found.push_back(pc);
      const bool goes_on = !is_branch || !guard.value_or(in.guard == kNoGuard);
      if (is_branch) for_labels(in, [&](std::size_t to) { left_.push_back({static_cast<std::uint32_t>(to), known}); });
      if (!goes_on) continue;
      compute(in, known, in.guard == kNoGuard || guard.has_value());
      left_.push_back({pc + 1, std::move(known)});
    }
    left_.clear();
    visits_.clear();
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  static std::optional<std::uint64_t> value_of(const Operand& op, const Known& known) {
    if (op.is_immediate) return static_cast<std::uint64_t>(op.value);
    for (const auto& [offset, value] : known)
      if (offset == op.offset) return op.is_negated ? value ^ 1 : value;
    return std::nullopt;
  }
  static std::optional<bool> guard_of(const Instruction& in, const Known& known) {
    if (in.guard == kNoGuard) return true;
    for (const auto& [offset, value] : known)
      if (offset == in.guard) return (value != 0) != in.guard_negated;
    return std::nullopt;
  }

  // What follows for the first destination; all others are not known from here on.
  static void compute(const Instruction& in, Known& known, bool is_executed) {
    std::optional<std::uint64_t> result;
    const std::string_view name = in.form->mnemonic;
    const auto value = [&](int i) { return i < in.num_operands ? value_of(in.op[i], known) : std::nullopt; };
    if (!is_executed) {
    } else if (name == "mov") {
      result = value(1);
    } else if (name == "selp") {
      if (const auto choice = value(3)) result = value(*choice != 0 ? 1 : 2);
    } else if (name == "setp") {
      const auto a = value(2), b = value(3);  // behind p|q
      const bool is_eq = in.opcode.find(".eq.") != std::string_view::npos;
      const bool is_ne = in.opcode.find(".ne.") != std::string_view::npos;
      const bool has_third = in.opcode.find(".and.") != std::string_view::npos ||
                             in.opcode.find(".or.") != std::string_view::npos ||
                             in.opcode.find(".xor.") != std::string_view::npos;
      if (a && b && !has_third && (is_eq || is_ne)) result = (*a == *b) == is_eq ? 1 : 0;
    } else if (name == "not") {
      if (const auto a = value(1); a && in.op[0].kind == Operand::Kind::predicate) result = *a ^ 1;
    } else if (name == "and" || name == "or" || name == "xor") {
      const auto a = value(1), b = value(2);
      const bool is_predicate = in.op[0].kind == Operand::Kind::predicate;
      if (a && b)
        result = name == "and" ? *a & *b : name == "or" ? *a | *b : *a ^ *b;
      else if (name == "and" && (a == 0u || b == 0u))
        result = 0;
      else if (name == "or" && is_predicate && (a == 1u || b == 1u))
        result = 1;
    }
    for (int i = 0; i < in.num_operands; ++i)
      if (in.op[i].is_destination) std::erase_if(known, [&](const auto& one) { return one.first == in.op[i].offset; });
    if (result && in.num_operands > 0 && in.op[0].is_destination) known.emplace_back(in.op[0].offset, *result);
  }

  const Entry& entry_;
  std::vector<std::pair<std::uint32_t, Known>> left_{};
  std::unordered_map<std::uint32_t, int> visits_{};
};

bool may_be_given_up(const Entry& entry, std::uint32_t wait) {
  if (entry.code[wait].op[0].is_sink) return false;
  Walk walk(entry);
  const std::vector<std::uint32_t> without = walk.acts(wait, false);
  if (without.empty()) return false;
  for (const std::uint32_t act : walk.acts(wait, true))
    if (std::binary_search(without.begin(), without.end(), act)) return true;
  return false;
}

}  // namespace

void find_given_up_waits(Entry& entry) {
  // One that leads to another which does not wait either: until none is found any more.
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
      Instruction& in = entry.code[pc];
      if (!is_wait(in) || (in.flags & (kWaitIsIgnored | kWaitMayBeGivenUp)) != 0) continue;
      if (!may_be_given_up(entry, static_cast<std::uint32_t>(pc))) continue;
      in.flags |= kWaitMayBeGivenUp;
      is_new = true;
    }
  }
}

}  // namespace tessera::emulator
