// What every instruction of an entry does with registers, for unwritten_registers.h.
#include <algorithm>

#include "emulator/findings/unwritten_registers.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}
bool has(const Instruction& in, std::string_view word) { return in.opcode.find(word) != std::string_view::npos; }

std::string_view first_word(const Instruction& in) { return in.opcode.substr(0, in.opcode.find('.')); }
std::string_view last_word(const Instruction& in) { return in.opcode.substr(in.opcode.rfind('.') + 1); }

// "u16": 2.
std::uint8_t bytes_of(std::string_view type) {
  const std::size_t digit = type.find_first_of("0123456789");
  if (digit == std::string_view::npos) return 0;
  int bits = 0;
  for (const char c : type.substr(digit)) {
    if (c < '0' || c > '9') return 0;
    bits = 10 * bits + (c - '0');
  }
  return static_cast<std::uint8_t>(bits / 8);
}

bool is_integer(std::string_view type) {
  return !type.empty() && (type[0] == 'u' || type[0] == 's' || type[0] == 'b') && bytes_of(type) != 0;
}

void classify_convert(const Instruction& in, RegisterFlow& flow) {
  const std::string_view from = last_word(in);
  const std::string_view rest = in.opcode.substr(0, in.opcode.rfind('.'));
  const std::string_view to = rest.substr(rest.rfind('.') + 1);
  if (!is_integer(from) || !is_integer(to) || has(in, ".sat")) return;
  flow.spread = Spread::converts;
  flow.read_bytes = bytes_of(from);
  flow.is_signed = from[0] == 's';
}

void classify(const Instruction& in, RegisterFlow& flow) {
  // Their operands matter, or whether they are executed at all.
  constexpr std::string_view kActs[] = {"st",        "atom",      "red",      "bra",           "brx",        "bar",
                                        "barrier",   "mbarrier",  "cp",       "stmatrix",      "setmaxnreg", "tcgen05",
                                        "nanosleep", "tensormap", "multimem", "discard",       "trap",       "exit",
                                        "ret",       "fence",     "membar",   "griddepcontrol"};
  constexpr std::string_view kBytewise[] = {"xor", "not", "lop3"};
  constexpr std::string_view kCarries[] = {"add", "sub", "mul", "mad", "neg"};
  constexpr std::string_view kIgnored[] = {"call", "match", "activemask", "elect", "pragma", "prefetch", "prefetchu"};
  const std::string_view word = first_word(in);
  const bool is_predicate = last_word(in) == "pred";
  const std::string_view type = last_word(in);
  flow.matters = is_one_of(word, kActs);
  if (flow.matters || is_one_of(word, kIgnored)) {
    flow.is_address_only = word == "st" && (has(in, ".local") || has(in, ".param"));
    return;
  }
  if (word == "ld" || word == "ldu" || word == "ldmatrix" || has(in, "wmma.load")) return;
  flow.spread = Spread::whole;
  if (has(in, "wgmma.mma_async"))
    flow.spread = Spread::multiplies;
  else if (word == "mov")
    flow.spread = Spread::moves;
  else if (word == "selp")
    flow.spread = Spread::chooses;
  else if (word == "shfl")
    flow.spread = Spread::shuffles;
  else if (word == "redux" || (word == "vote" && is_predicate))
    flow.spread = Spread::joins;
  else if (word == "vote")
    flow.spread = Spread::nothing;
  else if (is_one_of(word, kBytewise) && !has(in, "lop3.and") && !has(in, "lop3.or"))
    flow.spread = Spread::bytewise;
  else if (word == "and" || word == "or")
    flow.spread = word == "and" ? Spread::masks : Spread::raises;
  else if (is_one_of(word, kCarries) && is_integer(type) && !has(in, ".hi") && !has(in, ".wide") && !has(in, ".sat"))
    flow.spread = Spread::carries;
  else if (type == "f16x2" || type == "bf16x2" || type == "u16x2" || type == "s16x2")
    flow.spread = word == "setp" || word == "set" || word == "cvt" ? Spread::whole : Spread::halves;
  else if (word == "shl" || word == "shr")
    flow.spread = word == "shl" ? Spread::shifts_left : Spread::shifts_right;
  else if (word == "prmt" && has(in, "prmt.b32") && type == "b32")
    flow.spread = Spread::permutes;
  else if (word == "bfe")
    flow.spread = Spread::extracts;
  else if (word == "cvt")
    classify_convert(in, flow);
  flow.is_signed = flow.is_signed || (word == "shr" && type[0] == 's');
}

RegisterUse use_of(const Operand& op, int number, int element) {
  RegisterUse use;
  use.place = op.offset / 4;
  use.bytes = op.kind == Operand::Kind::predicate ? 1 : std::max<std::uint8_t>(op.bytes, 1);
  use.operand = static_cast<std::uint8_t>(number);
  use.element = static_cast<std::uint8_t>(element);
  return use;
}

void note(const Instruction& in, const Operand& op, int number, int element, RegisterFlow& flow) {
  const bool is_address = op.kind == Operand::Kind::address;
  if (op.is_sink || (op.kind != Operand::Kind::reg && op.kind != Operand::Kind::predicate && !is_address)) return;
  RegisterUse use = use_of(op, number, element);
  const bool multiplies = flow.spread == Spread::multiplies;
  if (multiplies && number == 0) {
    flow.results.push_back(use);
    return;
  }
  if (op.is_destination && !is_address) {
    flow.results.push_back(use);
    return;
  }
  if (op.is_immediate && flow.spread != Spread::moves) return;
  use.decides = is_address || (flow.matters && !flow.is_address_only) || (multiplies && in.op[number].count == 0);
  // Of a wider register only the bytes that are stored.
  if (first_word(in) == "st" && !is_address)
    if (const std::uint8_t stored = bytes_of(last_word(in)); stored != 0) use.bytes = std::min(use.bytes, stored);
  if (use.decides || flow.spread != Spread::nothing) flow.sources.push_back(use);
}

}  // namespace

std::vector<RegisterFlow> register_flows(const Entry& entry) {
  std::vector<RegisterFlow> flows(entry.code.size());
  for (std::size_t pc = 0; pc < flows.size(); ++pc) {
    const Instruction& in = entry.code[pc];
    RegisterFlow& flow = flows[pc];
    classify(in, flow);
    for (int i = 0; i < in.num_operands; ++i) {
      note(in, in.op[i], i, 0, flow);
      for (int j = 0; j < in.op[i].count; ++j) note(in, in.op[i].elements[j], i, j, flow);
    }
  }
  return flows;
}

}  // namespace tessera::emulator
