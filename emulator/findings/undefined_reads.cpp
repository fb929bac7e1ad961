// Tuples with registers that nothing can have written: accumulators that were never cleared, a fragment that was never
// loaded. Found once per entry, by the usual dataflow: a register is "maybe written" at a place when some path from the
// entry writes it, guarded or not. Where no path does, the value is garbage on every run, so there are no false alarms.
#include <fmt/format.h>

#include <vector>

#include "emulator/findings/control_flow.h"
#include "emulator/instructions/lanes.h"
#include "emulator/syntax/resolver.h"

namespace tessera::emulator {
namespace {

using Bits = std::vector<std::uint64_t>;

bool has(const Bits& bits, std::uint32_t i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }

bool is_register(const Operand& op) { return op.kind == Operand::Kind::reg || op.kind == Operand::Kind::predicate; }

// The accumulators of wgmma are written, whatever their operand says: it is read too.
bool is_accumulator(const Instruction& in, int operand) {
  return operand == 0 && in.form->mnemonic == "wgmma.mma_async";
}

template <class F>
void for_destinations(const Instruction& in, F f) {
  for (int i = 0; i < in.num_operands; ++i) {
    if (is_register(in.op[i]) && in.op[i].is_destination) f(in.op[i].offset);
    for (int j = 0; j < in.op[i].count; ++j)
      if (is_register(in.op[i].elements[j]) && (in.op[i].elements[j].is_destination || is_accumulator(in, i)))
        f(in.op[i].elements[j].offset);
  }
}

class Search {
 public:
  Search(Entry& entry, std::size_t num_registers) : entry_(entry), words_(num_registers / 64 + 1) {}

  void run() {
    find_blocks();
    // Until nothing changes: what a block ends with flows into the blocks after it.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t b = 0; b + 1 < starts_.size(); ++b) changed = flow(b) || changed;
    }
    for (std::size_t b = 0; b + 1 < starts_.size(); ++b) judge(b);
  }

 private:
  void find_blocks() {
    const std::size_t size = entry_.code.size();
    std::vector<bool> leader(size + 1, false);
    leader[0] = leader[size] = true;
    for (std::size_t i = 0; i < size; ++i) {
      if (ends_path(entry_.code[i])) leader[i + 1] = true;
      for_labels(entry_.code[i], [&](std::size_t target) { leader[target] = leader[i + 1] = true; });
    }
    leader[entry_.start_pc] = true;
    for (const OutOfLine& function : entry_.functions) leader[function.pc] = true;
    block_of_.resize(size + 1);
    for (std::size_t i = 0; i <= size; ++i) {
      if (leader[i]) starts_.push_back(static_cast<std::uint32_t>(i));
      block_of_[i] = static_cast<std::uint32_t>(starts_.size() - 1);
    }
    in_.assign(starts_.size(), Bits(words_, 0));
    reached_.assign(starts_.size(), false);
    enter_at(entry_.start_pc);
    for (const OutOfLine& function : entry_.functions) {
      enter_at(function.pc);
      for (const OutOfLine::Address& address : function.addresses) define(block_of_[function.pc], address.place.offset);
    }
  }

  void define(std::size_t block, std::uint32_t id) { in_[block][id / 64] |= std::uint64_t{1} << (id % 64); }

  // The kernel's start, or a function's: what never changes is there.
  void enter_at(std::uint32_t pc) {
    const std::size_t block = block_of_[pc];
    for (const ConstantSlot& constant : entry_.constants) define(block, constant.offset);
    for (const SpecialSlot& special : entry_.specials) define(block, special.offset);
    reached_[block] = true;
  }

  bool flow(std::size_t block) {
    if (!reached_[block]) return false;
    Bits out = in_[block];
    for (std::uint32_t i = starts_[block]; i < starts_[block + 1]; ++i)
      for_destinations(entry_.code[i], [&](std::uint32_t id) { out[id / 64] |= std::uint64_t{1} << (id % 64); });
    const Instruction& last = entry_.code[starts_[block + 1] - 1];
    bool changed = false;
    for_labels(last, [&](std::size_t target) { changed = join(block_of_[target], out) || changed; });
    if (!ends_path(last)) changed = join(block + 1, out) || changed;
    return changed;
  }

  bool join(std::size_t block, const Bits& bits) {
    if (block >= in_.size()) return false;
    bool changed = !reached_[block];
    reached_[block] = true;
    for (std::size_t w = 0; w < words_; ++w) {
      const std::uint64_t sum = in_[block][w] | bits[w];
      changed = changed || sum != in_[block][w];
      in_[block][w] = sum;
    }
    return changed;
  }

  // LLVM packs a pair of which one half is used later: `mov.b64` of a register that has a value and one that has none.
  static bool is_part_of_pack(const Instruction& in, int operand, const Bits& now) {
    if (in.form->mnemonic != "mov") return false;
    const auto& elements = in.op[operand].elements;
    return std::any_of(elements, elements + in.op[operand].count,
                       [&](const Operand& element) { return is_register(element) && has(now, element.offset); });
  }

  void judge(std::size_t block) {
    if (!reached_[block]) return;
    Bits now = in_[block];
    for (std::uint32_t i = starts_[block]; i < starts_[block + 1]; ++i) {
      Instruction& in = entry_.code[i];
      for (int o = 0; o < in.num_operands; ++o) {
        for (int j = 0; j < in.op[o].count; ++j) {
          const Operand& element = in.op[o].elements[j];
          if (!is_register(element) || has(now, element.offset)) continue;
          if (element.is_destination && !is_accumulator(in, o)) continue;
          if (is_part_of_pack(in, o, now)) continue;
          entry_.undefined_reads.try_emplace(i, UndefinedRead{o, j, in.run, is_accumulator(in, o)});
        }
      }
      for_destinations(in, [&](std::uint32_t id) { now[id / 64] |= std::uint64_t{1} << (id % 64); });
    }
  }

  Entry& entry_;
  std::size_t words_;
  std::vector<std::uint32_t> starts_;  // of blocks, and the end
  std::vector<std::uint32_t> block_of_;
  std::vector<Bits> in_;
  std::vector<bool> reached_;
};

// Stands in for the handler: says what is wrong, then does the work.
Step report(Warp& w, const Instruction& in, Mask active) {
  const UndefinedRead& read = w.launch->entry.undefined_reads.at(w.pc);
  const bool is_read = !read.is_accumulator || (w.read_predicate(in.op[3]) & active) != 0;
  if (is_read && w.wake == Wake::none)
    w.hazard(in, "register-uninitialised", -1, 0,
             fmt::format("element {} of operand {} is a register that no path to this place has written", read.element,
                         read.operand),
             read.is_accumulator ? "accumulators must be cleared, or the first product must ignore them (scale-d)"
                                 : "a fragment that was never loaded, or a loop that fills fewer registers");
  return read.handler(w, in, active);
}

}  // namespace

void find_undefined_reads(Entry& entry, std::size_t num_registers) {
  Search(entry, num_registers).run();
  for (const auto& [pc, read] : entry.undefined_reads) entry.code[pc].run = report;
}

}  // namespace tessera::emulator
