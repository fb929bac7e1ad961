// Branches that the assembler makes predicates of, as machine code for sm_90a shows it: a branch forward over a few
// plain instructions goes, and each of them gets a predicate. Then all issue, whether they have an effect or not.
#include <array>
#include <cstdint>
#include <string_view>

#include "emulator/time/cost.h"

namespace tessera::emulator {
namespace {

// Where a branch goes; past the end: what is none.
std::size_t target_of(const Entry& entry, std::size_t pc, bool is_guarded) {
  const std::size_t none = entry.code.size();
  if (pc >= none) return none;
  const Instruction& branch = entry.code[pc];
  if (!branch.opcode.starts_with("bra") || (branch.guard != kNoGuard) != is_guarded) return none;
  if (branch.num_operands == 0 || branch.op[0].kind != Operand::Kind::label) return none;
  return static_cast<std::size_t>(branch.op[0].value);
}

// Instructions that may have a predicate each. How many the assembler takes is not documented: of bounds checks around
// loads those of 17 machine instructions are predicates in its code (gemv), those of 20 and 21 branches (merge, gemv
// over MXFP8), and those with a store of global memory branches, however few (rows, from 6 on; quantize, 3).
bool are_few_and_plain(const Entry& entry, const EntryCosts& costs, std::size_t begin, std::size_t end) {
  constexpr double kMost = 18;
  if (end < begin) return false;
  double sum = 0;
  for (std::size_t i = begin; i < end && sum <= kMost; ++i) {
    const InstructionCost& cost = costs.by_pc[i];
    const std::string_view opcode = entry.code[i].opcode;
    if (cost.kind != CostKind::free) sum += cost.repeat;
    const bool is_access = (cost.kind == CostKind::global || cost.kind == CostKind::shared) &&
                           (opcode.starts_with("ld.") || opcode.starts_with("st.shared"));
    if (opcode.find("volatile") != std::string_view::npos) return false;
    if (!is_access && cost.kind != CostKind::plain && cost.kind != CostKind::free) return false;
    for (const char* word :
         {"bra",        "brx",     "ret",      "exit", "call",  "trap",   "vote",       "match",
          "activemask", "shfl",    "mbarrier", "bar",  "fence", "membar", "setmaxnreg", "griddepcontrol",
          "elect",      "tcgen05", "cp",       "wgmma"})
      if (opcode.starts_with(word)) return false;
  }
  return sum <= kMost;
}

// So it does with both sides of an `if` with an `else`, which are
//   @p bra YES; bra NO;  YES: ...; bra END;  NO: ...;  END:
// Until its value is used a load behind such a branch holds a predicate register.
void make_predicates_of(const Entry& entry, std::size_t pc, EntryCosts& all) {
  const std::size_t yes = target_of(entry, pc, true);
  if (yes <= pc || yes >= entry.code.size()) return;
  const std::size_t no = target_of(entry, pc + 1, false);
  const std::size_t end = yes == pc + 2 && no > yes ? target_of(entry, no - 1, false) : entry.code.size();
  std::size_t last = yes;
  if (no <= entry.code.size() && end >= no && end < entry.code.size()) {
    if (!are_few_and_plain(entry, all, yes, no - 1) || !are_few_and_plain(entry, all, no, end)) return;
    last = end;
  } else if (!are_few_and_plain(entry, all, pc + 1, yes)) {
    return;
  }
  for (std::size_t i = pc; i < last; ++i) {
    const std::string_view opcode = entry.code[i].opcode;
    InstructionCost& cost = all.by_pc[i];
    if (opcode.starts_with("bra")) cost.kind = CostKind::free, cost.ends_block = false;
    // With an `else` it is there until both sides have used it, and its address is added with a carry in another.
    cost.guards = !opcode.starts_with("ld.") ? 0 : last == yes ? 1 : 2;
  }
}

}  // namespace

void make_predicates(const Entry& entry, EntryCosts& costs) {
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) make_predicates_of(entry, pc, costs);
}

void count_skipped(const Entry& entry, EntryCosts& costs) {
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    InstructionCost& cost = costs.by_pc[pc];
    if (cost.kind != CostKind::free || !entry.code[pc].opcode.starts_with("bra")) continue;
    const std::size_t end = target_of(entry, pc, entry.code[pc].guard != kNoGuard);
    double sum = 0;
    std::array<double, kPipes> busy{};
    for (std::size_t i = pc + 1; i < end && end < entry.code.size(); ++i) {
      const InstructionCost& other = costs.by_pc[i];
      if (other.kind == CostKind::free) continue;
      sum += other.repeat;
      busy[static_cast<std::size_t>(other.time.pipe)] += other.repeat * other.time.interval;
    }
    cost.skipped = static_cast<std::uint16_t>(sum);
    busy[0] = 0;
    if (sum > 0) costs.skipped[pc] = busy;
  }
}

}  // namespace tessera::emulator
