#include "emulator/time/cost.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/syntax/isa.h"
#include "emulator/time/counters.h"
#include "emulator/time/values.h"

namespace tessera::emulator {
namespace {

bool has_word(std::string_view opcode, std::string_view word) {
  for (std::size_t at = opcode.find(word); at != std::string_view::npos; at = opcode.find(word, at + 1)) {
    const bool begins = at == 0 || opcode[at - 1] == '.';
    const std::size_t end = at + word.size();
    if (begins && (end == opcode.size() || opcode[end] == '.')) return true;
  }
  return false;
}

bool is_any(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_64_bit(std::string_view opcode) {
  return has_word(opcode, "s64") || has_word(opcode, "u64") || has_word(opcode, "b64");
}
bool is_packed_half(std::string_view opcode) {
  return has_word(opcode, "f16x2") || has_word(opcode, "bf16x2") || has_word(opcode, "f16") || has_word(opcode, "bf16");
}
bool is_float(std::string_view opcode) { return has_word(opcode, "f32") || has_word(opcode, "f32x2"); }

// mov: registers are renamed, halves of a 64-bit register are two of 32; 16-bit halves are put together by PRMT.
bool is_free_move(const Instruction& in) {
  const auto has_16_bit = [](const Operand& op) {
    for (int i = 0; op.kind == Operand::Kind::list && i < op.count; ++i)
      if (op.elements[i].bytes == 2) return true;
    return false;
  };
  for (int i = 0; i < in.num_operands; ++i)
    if (has_16_bit(in.op[i])) return false;
  return true;
}

int first_list(const Instruction& in) {
  for (int i = 0; i < in.num_operands; ++i)
    if (in.op[i].kind == Operand::Kind::list) return i;
  return 0;
}

// Halves of a 64-bit logic operation that an immediate leaves as they are, or sets to a constant, are no instruction.
double halves_that_work(const Instruction& in) {
  double halves = 2;
  for (int i = 0; i < in.num_operands; ++i) {
    if (!in.op[i].is_immediate) continue;
    const auto bits = static_cast<std::uint64_t>(in.op[i].value);
    for (const auto half : {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)})
      if (half == 0 || half == 0xFFFFFFFF) halves -= 1;
  }
  return std::max(halves, 0.0);
}

// What the assembler makes a sequence of instructions of; of 64 bits a function with about four of 32.
std::string sequence_of(std::string_view first, std::string_view opcode, double& repeat) {
  if (has_word(opcode, "f64")) return {};
  if (is_float(opcode)) return has_word(opcode, "rn") ? std::string(first) + "_rn" : std::string();
  if (is_64_bit(opcode)) repeat = 4;
  const bool is_signed = has_word(opcode, "s32") || has_word(opcode, "s64");
  return is_signed ? "div_s32" : first == "rem" ? "rem_u32" : "div_u32";
}

std::string arithmetic_class(const Instruction& in, std::string_view first, std::string_view opcode, double& repeat) {
  if (has_word(opcode, "f64")) return "fp64";
  const bool is_half = is_packed_half(opcode);
  if (is_any(first, {"add", "sub", "mul", "fma", "mad"}) && (is_half || is_float(opcode))) {
    if (has_word(opcode, "f32x2")) return "fma32x2";
    return is_half ? "fma16" : first == "fma" || first == "mad" ? "fma32" : "add32";
  }
  if (is_any(first, {"mad", "mul", "mad24", "mul24"})) {
    if (is_64_bit(opcode) && !has_word(opcode, "wide")) repeat = 3;
    return "imad";
  }
  if (is_any(first, {"min", "max", "setp", "set", "selp", "slct", "abs", "neg", "testp", "copysign"})) {
    if (is_64_bit(opcode)) repeat = 2;
    return "compare";
  }
  if (is_64_bit(opcode)) repeat = is_any(first, {"and", "or", "xor"}) ? halves_that_work(in) : 2;
  if (is_any(first, {"add", "sub", "addc", "subc", "sad", "dp4a", "dp2a"})) return "add_int";
  if (is_any(first, {"shl", "shr", "shf"})) return "shift";
  if (is_any(first, {"popc", "clz", "brev", "bfind", "fns"})) return "count_bits";
  return "logic";
}

}  // namespace

std::string class_name(const Instruction& in, double& repeat, CostKind& kind) {
  const std::string_view opcode = in.opcode;
  const std::string_view first = opcode.substr(0, opcode.find('.'));
  repeat = 1;
  kind = CostKind::plain;
  if (is_any(first, {"mov", "cvta"})) {
    if (!is_free_move(in)) return "permute";
    kind = CostKind::free;
    return "move";
  }
  if (first == "ld" || first == "ldu" || first == "st" || first == "ldmatrix" || first == "stmatrix") {
    if (has_word(opcode, "async")) {
      kind = CostKind::copy;
      return "issue_copy";
    }
    if (has_word(opcode, "param") || has_word(opcode, "const")) return "constant";
    const bool is_shared = first.ends_with("matrix") || opcode.find(".shared") != std::string_view::npos;
    kind = is_shared ? CostKind::shared : has_word(opcode, "local") ? CostKind::local : CostKind::global;
    return is_shared ? "shared" : "global";
  }
  if (first == "atom" || first == "red") {
    kind = CostKind::atomic;
    return "atomic";
  }
  if (first == "wgmma") {
    kind = opcode.find("mma_async") != std::string_view::npos ? CostKind::wgmma : CostKind::wait;
    return kind == CostKind::wgmma ? "wgmma" : "sync";
  }
  if (first == "cp") {
    if (opcode.find("commit") != std::string_view::npos || opcode.find("wait") != std::string_view::npos) return "sync";
    kind = opcode.find("bulk") != std::string_view::npos ? CostKind::tma : CostKind::copy;
    return kind == CostKind::tma ? "tma" : "issue_copy";
  }
  if (opcode.starts_with("tcgen05.ld") || opcode.starts_with("tcgen05.st")) {
    kind = CostKind::tensor_memory;
    const Operand& registers = in.op[first_list(in)];
    repeat = registers.kind == Operand::Kind::list ? registers.count : 1;
    return opcode.starts_with("tcgen05.ld") ? "tensor_load" : "tensor_store";
  }
  if (opcode.starts_with("tcgen05.wait")) {
    kind = CostKind::tensor_wait;
    return "sync";
  }
  if (opcode.starts_with("tcgen05.mma") || opcode.starts_with("tcgen05.cp")) return "tensor_issue";
  if (first == "mbarrier") return opcode.find("wait") != std::string_view::npos ? "mbarrier_wait" : "mbarrier_arrive";
  if (is_any(first, {"bar", "barrier", "fence", "membar", "setmaxnreg", "griddepcontrol", "tcgen05", "elect"}))
    return first == "elect" ? "vote" : first == "fence" || first == "membar" ? "fence" : "sync";
  if (is_any(first, {"rcp", "sqrt", "div", "rem"}))
    if (std::string name = sequence_of(first, opcode, repeat); !name.empty()) return name;
  if (is_any(first, {"ex2", "rcp", "rsqrt", "lg2", "sin", "cos", "tanh", "sqrt", "div"})) {
    if (first == "div") repeat = 2;
    return first == "ex2" ? "exponent" : "special";
  }
  if (first == "cvt") {
    if (has_word(opcode, "bf16x2") || has_word(opcode, "f16x2") || has_word(opcode, "bf16") || has_word(opcode, "f16"))
      return "pack";
    if (opcode.find("e4m3") != std::string_view::npos || opcode.find("e5m2") != std::string_view::npos ||
        opcode.find("e2m1") != std::string_view::npos)
      return "pack8";
    if (is_float(opcode) || has_word(opcode, "f64")) return "convert";
    kind = CostKind::free;  // widths of integers: the register is taken as it is, or moved
    return "move";
  }
  if (is_any(first, {"bra", "brx", "ret", "exit", "call", "trap"})) return "branch";
  if (first == "shfl") return "shuffle";
  if (is_any(first, {"vote", "match", "activemask"})) return "vote";
  if (first == "redux") return "redux";
  if (first == "wmma" && opcode.find("mma.sync") == std::string_view::npos) {
    kind = opcode.find(".shared") != std::string_view::npos ? CostKind::shared : CostKind::global;
    return kind == CostKind::shared ? "shared" : "global";
  }
  if (first == "mma" || first == "wmma") {
    kind = CostKind::mma;
    return "mma";
  }
  if (first == "movmatrix") return "movmatrix";
  if (is_any(first, {"prmt", "bfe", "bfi", "bfm"})) return "permute";
  if (is_any(first,
             {"prefetch", "discard", "applypriority", "createpolicy", "nanosleep", "isspacep", "mapa", "getctarank"}))
    return "other";
  std::string name = arithmetic_class(in, first, opcode, repeat);
  if (repeat == 0) kind = CostKind::free;
  return name;
}

namespace {

double number_after(std::string_view text, std::size_t at) {
  double number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) number = 10 * number + (text[at] - '0');
  return number;
}

// "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": 2 M N K operations; a sparse A has half of K stored, and the
// hardware is counted by what it multiplies.
double mma_operations(std::string_view opcode) {
  std::size_t m = opcode.find(".m1");
  if (m == std::string_view::npos) m = opcode.find(".m8");
  const std::size_t n = opcode.find('n', m), k = opcode.find('k', n);
  if (k == std::string_view::npos) return 0;
  const double product = number_after(opcode, m + 2) * number_after(opcode, n + 1) * number_after(opcode, k + 1);
  return opcode.find(".sp") != std::string_view::npos ? product : 2 * product;
}

std::string mma_form(std::string_view opcode) {
  if (opcode.find("kind::mxf4") != std::string_view::npos) return "mxf4";
  if (opcode.find("kind::mxf8f6f4") != std::string_view::npos) return "mxf8f6f4";
  std::vector<std::string_view> types;
  for (std::size_t at = 0; at < opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', at), opcode.size());
    const std::string_view word = opcode.substr(at, end - at);
    at = end + 1;
    if (is_any(word, {"f32", "f16", "f64", "s32", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u8",
                      "s4", "u4", "b1"}))
      types.push_back(word);
  }
  if (types.size() < 2) return {};
  std::string_view a = types[1];
  if (a == "bf16") a = "f16";
  if (is_any(a, {"e5m2", "e3m2", "e2m3", "e2m1"})) a = "e4m3";
  if (is_any(a, {"u8", "s4", "u4"})) a = "s8";
  return std::string(a) + (types[0] == "f16" ? " to f16" : "");
}

// What the description says of this type; a type that it does not know is as fast as 16 bits are.
void describe_mma(const Instruction& in, const GpuTime& gpu, InstructionCost& cost) {
  const double operations = mma_operations(in.opcode);
  auto found = gpu.mma.find(mma_form(in.opcode));
  if (found == gpu.mma.end()) found = gpu.mma.find("f16");
  if (found == gpu.mma.end() || operations == 0) return;
  cost.time.pipe = Pipe::tensor;
  cost.time.interval = operations * gpu.sub_cores / found->second.flop_per_clock;
  cost.time.latency = found->second.latency;
}

// Loads that other threads' writes do not concern: weak ones without a cache operator that goes past the L1.
bool stays_in_l1(std::string_view opcode) {
  for (const char* word : {"volatile", "relaxed", "acquire", "mmio", "cg", "cv"})
    if (has_word(opcode, word)) return false;
  return opcode.starts_with("ld");
}

class Numbering {
 public:
  explicit Numbering(EntryCosts& costs) : costs_(costs) {}
  /// Numbers of what an operand reads, or of what it gives.
  void add(const Operand& op, bool destinations) {
    if (op.is_immediate || op.is_sink) return;
    switch (op.kind) {
      case Operand::Kind::reg:
      case Operand::Kind::predicate:
      case Operand::Kind::address:
        if (op.is_destination == destinations) add(op.offset);
        return;
      case Operand::Kind::list:
        for (int i = 0; i < op.count; ++i) add(op.elements[i], destinations);
        return;
      case Operand::Kind::none:
      case Operand::Kind::label:
        return;
    }
  }
  void add(std::uint32_t offset) {
    const auto [it, is_new] = numbers_.try_emplace(offset, costs_.num_places);
    if (is_new) ++costs_.num_places;
    costs_.places.push_back(it->second);
  }

 private:
  EntryCosts& costs_;
  std::unordered_map<std::uint32_t, std::uint32_t> numbers_;
};

// What the assembler makes one load of: scalar loads of shared memory in a basic block, from one register, whose four
// bytes fill 8 or 16 that begin at a multiple of that. Whether the register itself is even enough is seen when they
// run.
class JoinedLoads {
 public:
  JoinedLoads(const Entry& entry, std::vector<InstructionCost>& costs) : entry_(entry), costs_(costs) {}

  void find() {
    std::vector<bool> begins_block(entry_.code.size() + 1);
    for (const Instruction& in : entry_.code)
      for (int i = 0; i < in.num_operands; ++i)
        if (in.op[i].kind == Operand::Kind::label && static_cast<std::size_t>(in.op[i].value) < begins_block.size())
          begins_block[static_cast<std::size_t>(in.op[i].value)] = true;
    for (std::size_t pc = 0; pc < entry_.code.size(); ++pc) {
      const Instruction& in = entry_.code[pc];
      const InstructionCost& cost = costs_[pc];
      const bool writes_shared = cost.access.writes && cost.access.space != AccessClass::Space::global;
      const bool is_quiet = cost.kind == CostKind::plain || cost.kind == CostKind::free ||
                            cost.kind == CostKind::shared || cost.kind == CostKind::global ||
                            cost.kind == CostKind::mma;
      if (begins_block[pc] || cost.ends_block || writes_shared || !is_quiet || changes_base(in)) close();
      const bool is_scalar = cost.kind == CostKind::shared && in.opcode.starts_with("ld.") && cost.access.bytes == 4 &&
                             in.guard == kNoGuard && cost.access.address != nullptr &&
                             cost.access.address->bytes == 4 && cost.access.address->kind == Operand::Kind::address &&
                             !cost.access.address->is_immediate && in.opcode.find("volatile") == std::string_view::npos;
      if (!is_scalar) continue;
      const Operand& address = *cost.access.address;
      const std::int64_t window = address.value >= 0 ? address.value / 16 : (address.value - 15) / 16;
      const std::int64_t word = address.value - 16 * window;
      if (word % 4 != 0) continue;
      const std::pair key{address.offset, window};
      if (windows_[key].contains(word / 4)) close();  // the same one again
      windows_[key][word / 4] = static_cast<std::uint32_t>(pc);
    }
    close();
  }

 private:
  bool changes_base(const Instruction& in) const {
    for (int i = 0; i < in.num_operands; ++i)
      if (in.op[i].is_destination && in.op[i].kind == Operand::Kind::reg)
        if (const auto next = windows_.lower_bound({in.op[i].offset, INT64_MIN});
            next != windows_.end() && next->first.first == in.op[i].offset)
          return true;
    return false;
  }
  void close() {
    for (const auto& [where, words] : windows_) {
      if (words.size() == 4) join(words, 0, 4);
      for (std::int64_t half = 0; half < 4 && words.size() < 4; half += 2)
        if (words.contains(half) && words.contains(half + 1)) join(words, half, 2);
    }
    windows_.clear();
  }
  void join(const std::map<std::int64_t, std::uint32_t>& words, std::int64_t first, int count) {
    std::int64_t earliest = first;
    for (std::int64_t word = first; word < first + count; ++word)
      if (words.at(word) < words.at(earliest)) earliest = word;
    for (std::int64_t word = first; word < first + count; ++word) costs_[words.at(word)].joins = words.at(earliest);
    costs_[words.at(earliest)].joined_bytes = static_cast<std::uint32_t>(4 * count);
    costs_[words.at(earliest)].below = static_cast<std::uint32_t>(4 * (earliest - first));
  }

  const Entry& entry_;
  std::vector<InstructionCost>& costs_;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::map<std::int64_t, std::uint32_t>> windows_{};
};

}  // namespace

void EntryCosts::join(std::size_t pc) {
  InstructionCost& first = by_pc[pc];
  const std::uint32_t value = places[first.first + first.sources];
  std::uint32_t left = first.joined_bytes / 4 - 1;
  for (std::size_t i = pc + 1; i < by_pc.size() && left > 0; ++i) {
    InstructionCost& other = by_pc[i];
    if (other.joins != pc) continue;
    const std::uint32_t own = places[other.first + other.sources];
    other.kind = CostKind::free;  // there when the first one's is
    other.first = static_cast<std::uint32_t>(places.size());
    other.sources = other.destinations = 1;
    places.insert(places.end(), {value, own});
    --left;
  }
  first.access.bytes = first.joined_bytes;
}

EntryCosts costs_of(const Entry& entry, const GpuTime& gpu) {
  EntryCosts costs;
  costs.by_pc.resize(entry.code.size());
  Numbering numbering(costs);
  for (std::size_t pc = 0; pc < entry.code.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    InstructionCost& cost = costs.by_pc[pc];
    cost.time = gpu.class_of(class_name(in, cost.repeat, cost.kind));
    cost.repeat *= cost.time.slots;
    if (cost.kind == CostKind::mma) describe_mma(in, gpu, cost);
    cost.access = classify_access(in);
    cost.is_counter = TileCounters::is_form(in);
    cost.uses_l1 = cost.kind == CostKind::global && stays_in_l1(in.opcode);
    const bool is_arithmetic =
        cost.time.pipe == Pipe::fma || cost.time.pipe == Pipe::alu || cost.time.pipe == Pipe::mufu;
    cost.is_movable = (cost.kind == CostKind::plain && is_arithmetic && !in.opcode.starts_with("vote")) ||
                      (cost.kind == CostKind::mma && cost.time.pipe == Pipe::tensor);
    // A store of shared memory lets loads of global memory go before it, too, and stands before the next load of its
    // own.
    cost.is_late_store = cost.kind == CostKind::shared && in.opcode.starts_with("st.shared") &&
                         in.opcode.find("volatile") == std::string_view::npos;
    cost.is_movable = cost.is_movable || cost.is_late_store;
    cost.needs_stores = cost.kind == CostKind::shared && !cost.is_late_store;
    for (const char* word : {"mbarrier", "fence", "membar", "barrier", "bar", "cp", "atom", "red", "wgmma", "tcgen05"})
      cost.needs_stores = cost.needs_stores || in.opcode.starts_with(word);
    cost.ends_block = cost.time.pipe == Pipe::branch || in.opcode.starts_with("bar") || in.opcode.starts_with("vote");
    cost.first = static_cast<std::uint32_t>(costs.places.size());
    const bool is_wgmma = cost.kind == CostKind::wgmma;
    if (in.guard != kNoGuard) numbering.add(in.guard);
    // The accumulators of a wgmma are nobody's until it is waited for.
    for (int i = is_wgmma ? 1 : 0; i < in.num_operands; ++i) numbering.add(in.op[i], false);
    cost.sources = static_cast<std::uint32_t>(costs.places.size()) - cost.first;
    for (int i = 0; i < in.num_operands && !is_wgmma; ++i) numbering.add(in.op[i], true);
    cost.destinations = static_cast<std::uint32_t>(costs.places.size()) - cost.first - cost.sources;
  }
  make_predicates(entry, costs);
  JoinedLoads(entry, costs.by_pc).find();
  const Chains chains(entry);
  fold_addresses(entry, chains, costs);
  fold_halves(entry, chains, costs);
  find_repeated(entry, costs);
  join_operations(entry, chains, costs);
  find_uniform(entry, chains, costs);
  find_loops(entry, costs);
  count_skipped(entry, costs);
  return costs;
}

}  // namespace tessera::emulator
