#include "emulator/findings/unwritten_registers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulator/instructions/lanes.h"

namespace tessera::emulator {

// Calls that are not expanded have registers of their own.
UnwrittenRegisters::UnwrittenRegisters(const Entry& entry)
    : flows_(entry.functions.empty() ? register_flows(entry) : std::vector<RegisterFlow>()) {}

namespace {

using Bytes = RegisterMarks::Bytes;

RegisterMarks& marks_of(Warp& warp) {
  if (warp.marks) return *warp.marks;
  warp.marks = std::make_shared<RegisterMarks>();
  RegisterMarks& marks = *warp.marks;
  const Entry& entry = warp.launch->entry;
  const std::size_t places = entry.register_file_bytes / 4 + 16;
  marks.any.assign(places, kAllLanes);
  marks.bytes.resize(places);
  marks.is_split.assign(places, 0);
  marks.where.assign(places, 0);
  for (const ConstantSlot& slot : entry.constants) marks.any[slot.offset / 4] = 0;
  for (const SpecialSlot& slot : entry.specials) marks.any[slot.offset / 4] = 0;
  return marks;
}

void report(Warp& warp, const Instruction& in, Mask lanes, std::int32_t where, const char* what) {
  warp.hazard(
      in, "unwritten-register", std::countr_zero(lanes), 0,
      fmt::format("{} depends on a register that this thread has not written when PTX line {} reads it", what, where),
      "a variable without a value on this path: a branch, a loop of no rounds or a guard leaves its write out");
}

// Where a mark matters.
void decide(Warp& warp, const Instruction& in, const RegisterFlow& flow, Mask active) {
  const RegisterMarks& marks = *warp.marks;
  const auto line_of = [&](std::uint32_t place) { return marks.where[place] != 0 ? marks.where[place] : in.line; };
  if (flow.matters && in.guard != kNoGuard) {
    // Lanes that go on as if the instruction were not there depend on it as well.
    if (const Mask lanes = marks.any[in.guard / 4] & active; lanes != 0)
      report(warp, in, lanes, line_of(in.guard / 4), "whether this instruction is executed");
  }
  for (const RegisterUse& use : flow.sources) {
    if (!use.decides || (marks.any[use.place] & active) == 0) continue;
    Mask lanes = 0;
    for (std::size_t k = 0; k < use.bytes; ++k) lanes |= marks.byte(use.place, k) & active;
    if (lanes != 0) return report(warp, in, lanes, line_of(use.place), flow.matters ? "an operand" : "the address");
  }
}

Bytes operand(const RegisterMarks& marks, const RegisterFlow& flow, int number) {
  Bytes bytes{};
  for (const RegisterUse& use : flow.sources)
    if (use.operand == number)
      for (std::size_t k = 0; k < use.bytes; ++k) bytes[k] |= marks.byte(use.place, k);
  return bytes;
}

std::uint64_t low_bits(const Warp& warp, const Operand& op, int lane) {
  return read_lane<std::uint64_t>(warp, op, lane);
}

// Lanes of `lanes` in which this byte of the operand is `value`, whatever else.
Mask lanes_with(const Warp& warp, const Operand& op, std::size_t k, std::uint8_t value, Mask lanes) {
  if (op.kind == Operand::Kind::predicate) return value == 0 ? ~warp.read_predicate(op) : warp.read_predicate(op);
  Mask found = 0;
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (static_cast<std::uint8_t>(low_bits(warp, op, lane) >> (8 * k)) == value) found |= Mask{1} << lane;
  }
  return found;
}

// The value that all of these lanes have; false where they differ.
bool uniform(const Warp& warp, const Operand& op, Mask lanes, std::uint64_t& value) {
  value = low_bits(warp, op, std::countr_zero(lanes));
  for (Mask rest = lanes; rest != 0; rest &= rest - 1)
    if (low_bits(warp, op, std::countr_zero(rest)) != value) return false;
  return true;
}

// PTX ISA, "shfl.sync": the lane that it reads from.
void shuffle(const Warp& warp, const Instruction& in, const RegisterFlow& flow, Mask active) {
  RegisterMarks& marks = *warp.marks;
  const Bytes value = operand(marks, flow, 2);
  Mask asks = 0;
  for (const int i : {3, 4})
    for (const Mask byte : operand(marks, flow, i)) asks |= byte;
  const bool is_up = in.opcode.find(".up") != std::string_view::npos;
  const bool is_down = in.opcode.find(".down") != std::string_view::npos;
  const bool is_bfly = in.opcode.find(".bfly") != std::string_view::npos;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto b = static_cast<int>(low_bits(warp, in.op[3], lane) & 31);
    const std::uint64_t c = low_bits(warp, in.op[4], lane);
    const int segment = static_cast<int>(c >> 8 & 31), clamp = static_cast<int>(c & 31);
    const int last = (lane & segment) | (clamp & ~segment);
    const int wanted = is_up ? lane - b : is_down ? lane + b : is_bfly ? lane ^ b : (lane & segment) | (b & ~segment);
    const int from = (is_up ? wanted >= last : wanted <= last) ? wanted & 31 : lane;
    for (std::size_t k = 0; k < 4; ++k)
      marks.computed[0][k] |= (value[k] >> from & 1) << lane | (asks & Mask{1} << lane);
  }
}

void compute(const Warp& warp, const Instruction& in, const RegisterFlow& flow, Mask active) {
  RegisterMarks& marks = *warp.marks;
  std::vector<Bytes>& computed = marks.computed;
  Mask all = 0;
  for (const RegisterUse& use : flow.sources)
    for (std::size_t k = 0; k < use.bytes; ++k)
      if (!use.decides) all |= marks.byte(use.place, k);
  const auto fill = [&](Mask mask) {
    for (Bytes& bytes : computed) bytes.fill(mask);
  };
  if (computed.empty()) return;
  const std::size_t width = flow.results[0].bytes;
  Bytes& out = computed[0];
  std::uint64_t number = 0;
  switch (flow.spread) {
    case Spread::moves: {
      std::vector<Mask> chain;
      for (const RegisterUse& use : flow.sources)
        for (std::size_t k = 0; k < use.bytes; ++k) chain.push_back(marks.byte(use.place, k));
      // Of several results each has its share, also where some are left out (`_`).
      const std::size_t share = in.op[0].count > 1 ? chain.size() / in.op[0].count : 0;
      for (std::size_t r = 0; r < computed.size(); ++r)
        for (std::size_t k = 0, from = flow.results[r].element * share; k < flow.results[r].bytes; ++k, ++from)
          computed[r][k] = from < chain.size() ? chain[from] : 0;
      return;
    }
    case Spread::bytewise:
      for (int i = 1; i < in.num_operands; ++i) {
        const Bytes from = operand(marks, flow, i);
        for (std::size_t k = 0; k < width; ++k) out[k] |= from[k];
      }
      return;
    case Spread::carries: {
      Mask sum = 0;
      for (std::size_t k = 0; k < width; ++k) {
        for (int i = 1; i < in.num_operands; ++i) sum |= operand(marks, flow, i)[k];
        out[k] = sum;
      }
      return;
    }
    case Spread::halves:
      for (std::size_t k = 0; k < width; ++k)
        for (int i = 1; i < in.num_operands; ++i) {
          const Bytes from = operand(marks, flow, i);
          out[k] |= from[k & ~std::size_t{1}] | from[k | 1];
        }
      return;
    case Spread::masks:
    case Spread::raises: {
      const Bytes a = operand(marks, flow, 1), b = operand(marks, flow, 2);
      const std::uint8_t wins = flow.spread == Spread::masks ? 0 : 0xFF;
      for (std::size_t k = 0; k < width; ++k) {
        const Mask marked = (a[k] | b[k]) & active;
        if (marked == 0) continue;
        const Mask decided = (~a[k] & lanes_with(warp, in.op[1], k, wins, marked)) |
                             (~b[k] & lanes_with(warp, in.op[2], k, wins, marked));
        out[k] = marked & ~decided;
      }
      return;
    }
    case Spread::chooses: {
      const Bytes yes = operand(marks, flow, 1), no = operand(marks, flow, 2), which = operand(marks, flow, 3);
      const Mask taken = warp.read_predicate(in.op[3]);
      for (std::size_t k = 0; k < width; ++k) out[k] = (yes[k] & taken) | (no[k] & ~taken) | which[0];
      return;
    }
    case Spread::shifts_left:
    case Spread::shifts_right: {
      const Bytes from = operand(marks, flow, 1), count = operand(marks, flow, 2);
      if (((count[0] | count[1] | count[2] | count[3]) & active) != 0 || !uniform(warp, in.op[2], active, number))
        return fill(all);
      const auto bits = static_cast<std::int64_t>(std::min<std::uint64_t>(number & 0xFFFFFFFF, 8 * width));
      const std::int64_t down = flow.spread == Spread::shifts_left ? -bits : bits;
      for (std::size_t k = 0; k < width; ++k)
        for (std::int64_t bit = 8 * static_cast<std::int64_t>(k); bit < 8 * static_cast<std::int64_t>(k) + 8; ++bit) {
          const std::int64_t source = bit + down;
          if (source >= 0 && source < 8 * static_cast<std::int64_t>(width))
            out[k] |= from[static_cast<std::size_t>(source / 8)];
          else if (flow.is_signed && source > 0)
            out[k] |= from[width - 1];
        }
      return;
    }
    case Spread::permutes: {
      const Bytes a = operand(marks, flow, 1), b = operand(marks, flow, 2), choice = operand(marks, flow, 3);
      if (((choice[0] | choice[1]) & active) != 0 || !uniform(warp, in.op[3], active, number)) return fill(all);
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t from = number >> (4 * k) & 7;
        out[k] = from < 4 ? a[from] : b[from - 4];
      }
      return;
    }
    case Spread::extracts: {
      const Bytes from = operand(marks, flow, 1), begin = operand(marks, flow, 2), count = operand(marks, flow, 3);
      std::uint64_t length = 0;
      if (((begin[0] | count[0]) & active) != 0 || !uniform(warp, in.op[2], active, number) ||
          !uniform(warp, in.op[3], active, length))
        return fill(all);
      number &= 0xFF;
      length &= 0xFF;
      Mask read = 0;
      for (std::uint64_t bit = number; bit < number + length && bit < 8 * width; ++bit) read |= from[bit / 8];
      return fill(read);
    }
    case Spread::converts: {
      const Bytes from = operand(marks, flow, 1);
      for (std::size_t k = 0; k < width; ++k)
        out[k] = k < flow.read_bytes ? from[k] : flow.is_signed ? from[std::size_t{flow.read_bytes} - 1] : 0;
      return;
    }
    case Spread::shuffles:
      return shuffle(warp, in, flow, active);
    case Spread::joins:
      return fill((all & active) != 0 ? kAllLanes : 0);
    case Spread::multiplies: {
      const Mask adds = warp.read_predicate(in.op[3]);
      for (std::size_t r = 0; r < computed.size(); ++r)
        computed[r].fill(all | (marks.any[flow.results[r].place] & adds));
      return;
    }
    default:
      return fill(all);
  }
}

void spread(Warp& warp, const Instruction& in, const RegisterFlow& flow, Mask active) {
  RegisterMarks& marks = *warp.marks;
  marks.computed.assign(flow.results.size(), Bytes{});
  marks.read_at = 0;
  if (flow.spread == Spread::nothing) return;
  for (const RegisterUse& use : flow.sources)
    if ((marks.any[use.place] & active) != 0 && marks.read_at == 0)
      marks.read_at = marks.where[use.place] != 0 ? marks.where[use.place] : in.line;
  if (marks.read_at == 0) marks.read_at = in.line;
  compute(warp, in, flow, active);
  if (in.guard != kNoGuard)
    for (Bytes& bytes : marks.computed)
      for (Mask& byte : bytes) byte |= marks.any[in.guard / 4];
}

}  // namespace

void UnwrittenRegisters::before(Warp& warp, const Instruction& in, Mask active, std::uint64_t) {
  if (flows_.empty()) return;
  const RegisterFlow& flow = flows_[static_cast<std::size_t>(&in - warp.code)];
  RegisterMarks& marks = marks_of(warp);
  Mask marked = in.guard == kNoGuard ? 0 : marks.any[in.guard / 4];
  for (const RegisterUse& use : flow.sources) marked |= marks.any[use.place];
  if (flow.spread == Spread::multiplies)
    for (const RegisterUse& use : flow.results) marked |= marks.any[use.place];
  // Of lanes that do not take part, only what others ask them for.
  marks.is_clean = (marked & active) == 0;
  if (marks.is_clean) [[likely]]
    return;
  decide(warp, in, flow, active);
  spread(warp, in, flow, active);
}

void UnwrittenRegisters::after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t) {
  if (flows_.empty() || step == Step::blocked || step == Step::fault) return;
  const RegisterFlow& flow = flows_[static_cast<std::size_t>(&in - warp.code)];
  RegisterMarks& marks = *warp.marks;
  for (std::size_t r = 0; r < flow.results.size(); ++r) {
    const std::uint32_t place = flow.results[r].place;
    if (marks.is_clean && marks.is_split[place] == 0) [[likely]] {
      marks.any[place] &= ~active;
      continue;
    }
    Mask some = 0;
    bool differ = false;
    Bytes next{};
    for (std::size_t k = 0; k < flow.results[r].bytes; ++k) {
      next[k] = (marks.byte(place, k) & ~active) | (marks.is_clean ? 0 : marks.computed[r][k] & active);
      some |= next[k];
      differ = differ || next[k] != next[0];
    }
    marks.any[place] = some;
    marks.is_split[place] = differ ? 1 : 0;
    if (differ) std::copy_n(next.begin(), flow.results[r].bytes, marks.bytes.begin() + place);
    if (some != 0 && !marks.is_clean && marks.read_at != 0) marks.where[place] = marks.read_at;
  }
}

}  // namespace tessera::emulator
