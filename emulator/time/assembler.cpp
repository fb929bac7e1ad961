// What the assembler makes of integer operations, as machine code for sm_90a shows it: two that follow
// each other and have three operands are one (IADD3, LOP3, LEA, IMAD.WIDE), and signs of operands are none. And what
// all lanes of a warp have the same of, by the code alone, goes to the uniform datapath: an issue slot, and no turn on
// a pipe.
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/time/cost.h"
#include "emulator/time/opcode_words.h"
#include "emulator/time/values.h"

namespace tessera::emulator {
namespace {

bool has(std::string_view opcode, std::string_view word) { return opcode.find(word) != std::string_view::npos; }

bool is_of_32_bits(std::string_view opcode) { return has(opcode, "32") && !has(opcode, "f32") && !has(opcode, ".cc"); }
bool is_sum(std::string_view opcode) { return starts_with_any(opcode, {"add.", "sub."}) && is_of_32_bits(opcode); }
bool is_logic(std::string_view opcode) {
  return starts_with_any(opcode, {"and.b", "or.b", "xor.b", "not.b"}) && !has(opcode, "b64");
}

class Joined {
 public:
  Joined(const Entry& entry, const Chains& chains, EntryCosts& costs)
      : entry_(entry), chains_(chains), costs_(costs), joins_(entry.code.size()) {}

  void find() {
    for (std::size_t pc = 0; pc < entry_.code.size(); ++pc) {
      const Instruction& in = entry_.code[pc];
      if (costs_.by_pc[pc].kind != CostKind::plain) continue;
      if (in.opcode.starts_with("not.pred")) costs_.by_pc[pc].kind = CostKind::free;  // a source is negated
      if (is_sign(in) && serves_sums_alone(pc)) costs_.by_pc[pc].kind = CostKind::free;
      if (in.guard != kNoGuard) continue;
      if (is_sum(in.opcode))
        join(pc, [&](const Instruction& first) {
          return is_sum(first.opcode) || (first.opcode.starts_with("shl.b32") && in.opcode.starts_with("add."));
        });
      if (is_logic(in.opcode)) join(pc, [](const Instruction& first) { return is_logic(first.opcode); });
      if (starts_with_any(in.opcode, {"add.s64", "add.u64"})) join_wide(pc);
    }
  }

 private:
  // `neg` and `abs`, which an operand of arithmetic on fp32 has as a sign.
  static bool is_sign(const Instruction& in) {
    return starts_with_any(in.opcode, {"neg.f32", "neg.ftz.f32", "abs.f32", "abs.ftz.f32"});
  }
  bool serves_sums_alone(std::size_t pc) const {
    const Chains::Uses& uses = chains_.uses(pc, entry_.code[pc].op[0].offset);
    bool all = !uses.escapes && !uses.by.empty();
    for (const std::uint32_t by : uses.by) {
      const std::string_view opcode = entry_.code[by].opcode;
      all = all && has(opcode, "f32") &&
            starts_with_any(opcode, {"add.", "sub.", "mul.", "fma.", "min.", "max.", "setp.", "selp."});
    }
    return all;
  }

  static bool is_twice(const Instruction& in, std::uint32_t place) {
    int count = 0;
    visit_registers(in, false, [&](const Operand& op) { count += op.offset == place ? 1 : 0; });
    return count > 1;
  }

  // One of its operands comes from an operation that serves it alone and has taken no other: both are one.
  template <class F>
  void join(std::size_t pc, F&& fits) {
    const Instruction& in = entry_.code[pc];
    for (int i = 1; i < in.num_operands && joins_[pc] == 0; ++i) {
      const Operand& op = in.op[i];
      if (op.is_immediate || op.is_destination || op.kind == Operand::Kind::list || is_twice(in, op.offset)) continue;
      const std::uint32_t first = chains_.definition(pc, op.offset);
      if (first == Chains::kNone || joins_[first] != 0 || costs_.by_pc[first].kind != CostKind::plain) continue;
      const Instruction& other = entry_.code[first];
      if (other.guard != kNoGuard || !fits(other) ||
          !chains_.uses(first, op.offset).is_only(static_cast<std::uint32_t>(pc)))
        continue;
      costs_.by_pc[first].kind = CostKind::free;
      joins_[pc] = 1;
    }
  }

  // A product of 32 bits and a sum of 64: IMAD.WIDE.
  void join_wide(std::size_t pc) {
    const Instruction& in = entry_.code[pc];
    for (int i = 1; i < in.num_operands; ++i) {
      if (in.op[i].is_immediate || in.op[i].kind != Operand::Kind::reg) continue;
      const std::uint32_t first = chains_.definition(pc, in.op[i].offset);
      if (first == Chains::kNone || !entry_.code[first].opcode.starts_with("mul.wide.") ||
          costs_.by_pc[first].kind != CostKind::plain ||
          !chains_.uses(first, in.op[i].offset).is_only(static_cast<std::uint32_t>(pc)))
        continue;
      costs_.by_pc[first].kind = CostKind::free;
      InstructionCost& cost = costs_.by_pc[pc];
      cost.time = costs_.by_pc[first].time;
      cost.repeat = 1;
      return;
    }
  }

  const Entry& entry_;
  const Chains& chains_;
  EntryCosts& costs_;
  std::vector<std::uint8_t> joins_;  ///< by pc: it has taken another one
};

// What the uniform datapath has: integers, comparisons and predicates of 32 bits, and pairs of them.
bool has_uniform_form(std::string_view opcode) {
  if (has(opcode, "f32") || has(opcode, "f16") || has(opcode, "f64") || has(opcode, ".cc")) return false;
  return starts_with_any(opcode,
                         {"add.",  "sub.",  "mul.", "mad.", "and.",  "or.",   "xor.",  "not.", "shl.",  "shr.", "shf.",
                          "setp.", "selp.", "mov.", "cvt.", "cvta.", "lop3.", "prmt.", "bfe.", "popc.", "neg."});
}

// What gives all lanes the same, whatever it takes.
bool is_uniform_source(const Instruction& in) {
  if (starts_with_any(in.opcode, {"ld.param", "ld.const", "vote.", "activemask", "redux."})) return true;
  return in.opcode.starts_with("shfl.sync.idx") && in.num_operands > 2 && in.op[in.num_operands - 3].is_immediate;
}

bool is_of_lane(Special special) {
  switch (special) {
    case Special::tid_x:
    case Special::tid_y:
    case Special::tid_z:
    case Special::laneid:
    case Special::warpid:
    case Special::lanemask_eq:
    case Special::lanemask_le:
    case Special::lanemask_lt:
    case Special::lanemask_ge:
    case Special::lanemask_gt:
      return true;
    default:
      return false;
  }
}

}  // namespace

void join_operations(const Entry& entry, const Chains& chains, EntryCosts& costs) {
  Joined(entry, chains, costs).find();
}

// Of registers that cross blocks: those of which every definition is uniform. All are taken for it, and what follows
// from one that is not is struck out until nothing changes.
void find_uniform(const Entry& entry, const Chains& chains, EntryCosts& costs) {
  std::unordered_map<std::uint32_t, bool> varies;  // by place that crosses blocks
  for (const SpecialSlot& special : entry.specials)
    if (is_of_lane(special.special)) varies[special.offset] = true;
  std::vector<bool> is_uniform(entry.code.size(), true);
  for (bool changes = true; changes;) {
    changes = false;
    for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
      if (!is_uniform[pc]) continue;
      const Instruction& in = entry.code[pc];
      bool is = is_uniform_source(in);
      if (!is && has_uniform_form(in.opcode)) {
        is = true;
        const auto look = [&](std::uint32_t place) {
          const std::uint32_t from = chains.definition(pc, place);
          const auto found = varies.find(place);
          is = is && (from != Chains::kNone ? is_uniform[from] : found == varies.end() || !found->second);
        };
        if (in.guard != kNoGuard) look(in.guard);
        visit_registers(in, false, [&](const Operand& op) { look(op.offset); });
      }
      if (is) continue;
      is_uniform[pc] = false;
      changes = true;
      visit_registers(in, true, [&](const Operand& op) {
        if (chains.crosses_blocks(op.offset)) varies[op.offset] = true;
      });
    }
  }
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    InstructionCost& cost = costs.by_pc[pc];
    const bool has_pipe = cost.time.pipe == Pipe::alu || cost.time.pipe == Pipe::fma;
    if (!is_uniform[pc] || cost.kind != CostKind::plain || !has_pipe || !has_uniform_form(entry.code[pc].opcode))
      continue;
    cost.time.pipe = Pipe::none;
    cost.time.interval = 1;
  }
}

}  // namespace tessera::emulator
