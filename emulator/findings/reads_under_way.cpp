// Loads of shared memory that may still be under way when a thread arrives on an mbarrier: nothing has needed what they
// load. PTX ISA, "Memory Consistency Model", "Proxies".
//
// An arrival orders what its thread has read before what other threads write, but not before what TMA writes: that is
// another proxy, and asks for a fence.proxy.async between. Compilers and hardware use that: ptxas moves products and
// other arithmetic behind the arrival, which then waits for no load whose value only they need. On an H100 and an H200
// one launch in 100 to 1,000 of an attention kernel multiplied rows of a block that TMA had written over ldmatrix.
//
// Found once per entry, from each load forward over all paths: where its value goes by instructions that only compute.
// Its reads are over where something else needs the value (a store, an address, a branch, a shuffle, wgmma), at
// fence.proxy.async, and, for what compilers make of them, at barriers of the CTA or the cluster, memory fences and
// wgmma.fence. Each arrival reached before that is noted with the load. Whatever is not known to be plain arithmetic
// counts as a need, and paths that meet share what holds the value, so a load is called under way only where it may be.
// What TMA then overwrites, the race detector sees (RaceDetector::check_under_way).
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "emulator/findings/control_flow.h"
#include "emulator/syntax/resolver.h"

namespace tessera::emulator {
namespace {

constexpr std::size_t kMostFollowed = 20'000'000;  // of an entry; loads beyond are not followed

enum class Role : std::uint8_t { needs, computes, loads, arrives, ends };

template <std::size_t N>
bool is_among(std::string_view name, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_shared_load(const Instruction& in) {
  const std::string_view name = in.form->mnemonic;
  if (name == "ldmatrix" || name.substr(0, 10) == "wmma.load.") return true;
  if (name != "ld") return false;
  for (const std::string_view other : {".global", ".local", ".param", ".const"})
    if (in.opcode.find(other) != std::string_view::npos) return false;
  return true;  // also a generic address: the detector knows what it reads
}

Role role_of(const Instruction& in) {
  constexpr std::string_view kComputes[] = {
      "abs", "add",   "addc", "and",  "bfe",  "bfi",   "bfind", "brev",  "clz",   "cnot",  "copysign",
      "cos", "cvt",   "cvta", "div",  "dp2a", "dp4a",  "ex2",   "fma",   "fns",   "lg2",   "lop3",
      "mad", "mad24", "madc", "max",  "min",  "mma",   "mov",   "mul",   "mul24", "neg",   "not",
      "or",  "popc",  "prmt", "rcp",  "rem",  "rsqrt", "sad",   "selp",  "set",   "setp",  "shf",
      "shl", "shr",   "sin",  "slct", "sqrt", "sub",   "subc",  "szext", "tanh",  "testp", "xor"};
  const std::string_view name = in.form->mnemonic, word = name.substr(0, name.find('.'));
  if (is_shared_load(in)) return Role::loads;
  if (name == "mbarrier.arrive" || name == "mbarrier.arrive_drop") return Role::arrives;
  if (name == "fence.proxy.async")
    return in.opcode.find(".global") != std::string_view::npos ? Role::needs : Role::ends;
  if (name == "wgmma.fence" || name == "fence" || name == "membar") return Role::ends;
  if ((word == "bar" && name != "bar.warp.sync") || word == "barrier") return Role::ends;
  return name == "wmma.mma" || is_among(word, kComputes) ? Role::computes : Role::needs;
}

class RegisterSet {
 public:
  explicit RegisterSet(std::size_t count) : words_((count + 63) / 64) {}
  bool has(std::uint32_t id) const { return (words_[id / 64] >> (id % 64) & 1) != 0; }
  void add(std::uint32_t id) { words_[id / 64] |= std::uint64_t{1} << (id % 64); }
  void drop(std::uint32_t id) { words_[id / 64] &= ~(std::uint64_t{1} << (id % 64)); }
  bool is_empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word == 0; });
  }
  /// Whether the other has some that were not there.
  bool join(const RegisterSet& other) {
    bool is_more = false;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      is_more = is_more || (other.words_[i] & ~words_[i]) != 0;
      words_[i] |= other.words_[i];
    }
    return is_more;
  }

 private:
  std::vector<std::uint64_t> words_;
};

class ReadSearch {
 public:
  ReadSearch(Entry& entry, std::size_t num_registers) : entry_(entry), none_(num_registers) {
    steps_.reserve(entry.code.size());
    for (const Instruction& in : entry.code) {
      Step& step = steps_.emplace_back();
      step.role = role_of(in);
      step.first = static_cast<std::uint32_t>(ids_.size());
      note(in, false);
      step.results = static_cast<std::uint32_t>(ids_.size());
      note(in, true);
      step.end = static_cast<std::uint32_t>(ids_.size());
    }
    for (const Instruction& in : entry.code)
      for_labels(in, [&](std::size_t target) {
        if (target < steps_.size()) steps_[target].is_target = true;
      });
  }

  void follow(std::uint32_t load) {
    known_.clear();
    left_.clear();
    RegisterSet holders = none_;
    for_ids(steps_[load].results, steps_[load].end, [&](std::uint32_t id) { holders.add(id); });
    left_.emplace_back(load + 1, std::move(holders));
    while (!left_.empty() && num_steps_ < kMostFollowed) {
      auto [pc, from] = std::move(left_.back());
      left_.pop_back();
      walk(load, pc, std::move(from));
    }
  }

  void run() {
    for (std::uint32_t pc = 0; pc < steps_.size() && num_steps_ < kMostFollowed; ++pc)
      if (steps_[pc].role == Role::loads) follow(pc);
  }

 private:
  struct Step {
    Role role = Role::needs;
    bool is_target = false;
    std::uint32_t first = 0, results = 0, end = 0;  // in ids_: sources, then results
  };

  void note(const Instruction& in, bool of_results) {
    const auto one = [&](const Operand& op) {
      const bool is_register = op.kind == Operand::Kind::reg || op.kind == Operand::Kind::predicate;
      if (op.is_sink || (!is_register && op.kind != Operand::Kind::address)) return;
      if ((op.is_destination && is_register) == of_results) ids_.push_back(op.offset);
    };
    for (int i = 0; i < in.num_operands; ++i) {
      one(in.op[i]);
      for (int j = 0; j < in.op[i].count; ++j) one(in.op[i].elements[j]);
    }
  }

  template <class F>
  void for_ids(std::uint32_t first, std::uint32_t end, F f) const {
    for (std::uint32_t i = first; i < end; ++i) f(ids_[i]);
  }

  // From pc on, until the load is over or the code goes where it has been with as much.
  void walk(std::uint32_t load, std::uint32_t pc, RegisterSet holders) {
    for (; pc < steps_.size(); ++pc) {
      const Step& step = steps_[pc];
      const Instruction& in = entry_.code[pc];
      if (step.is_target) {
        const auto [known, is_new] = known_.try_emplace(pc, holders);
        if (!is_new && !known->second.join(holders)) return;
        holders = known->second;
      }
      if (++num_steps_ > kMostFollowed || pc == load || step.role == Role::ends) return;
      if (in.guard != kNoGuard && holders.has(in.guard)) return;
      bool is_read = false;
      for_ids(step.first, step.results, [&](std::uint32_t id) { is_read = is_read || holders.has(id); });
      if (is_read && step.role != Role::computes) return;
      if (step.role == Role::arrives) note_arrival(pc, load);
      if (is_read) {
        for_ids(step.results, step.end, [&](std::uint32_t id) { holders.add(id); });
      } else if (in.guard == kNoGuard && step.results != step.end) {
        for_ids(step.results, step.end, [&](std::uint32_t id) { holders.drop(id); });
        if (holders.is_empty()) return;
      }
      for_labels(in, [&](std::size_t target) { left_.emplace_back(static_cast<std::uint32_t>(target), holders); });
      if (ends_path(in)) return;
    }
  }

  void note_arrival(std::uint32_t arrival, std::uint32_t load) {
    std::vector<std::uint32_t>& loads = entry_.reads_under_way[arrival];
    if (loads.empty() || loads.back() != load) loads.push_back(load);
  }

  Entry& entry_;
  const RegisterSet none_;
  std::vector<Step> steps_{};
  std::vector<std::uint32_t> ids_{};
  std::unordered_map<std::uint32_t, RegisterSet> known_{};  // by pc of labels: what may hold the value there
  std::vector<std::pair<std::uint32_t, RegisterSet>> left_{};
  std::size_t num_steps_ = 0;
};

}  // namespace

void find_reads_under_way(Entry& entry, std::size_t num_registers) {
  const auto has = [&](std::string_view start) {
    return std::any_of(entry.code.begin(), entry.code.end(),
                       [&](const Instruction& in) { return in.form->mnemonic.substr(0, start.size()) == start; });
  };
  if (has("mbarrier.arrive") && has("cp.async.bulk")) ReadSearch(entry, num_registers).run();
}

}  // namespace tessera::emulator
