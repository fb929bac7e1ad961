// PTX ISA, "tcgen05.mma", "tcgen05.mma.ws": from an instruction's operands to an operation in the queue. Every active
// lane starts one.
#include <fmt/format.h>

#include "emulator/tensor_cores/tensor_mma.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Tcgen05Kind;

// number: kind | cta_group << 4 | scale_vec << 8. flags: 1 A in Tensor Memory, 2 .ws, 4 block-scaled.
Tcgen05Kind kind_of(const Instruction& in) { return static_cast<Tcgen05Kind>(in.number & 15); }
int group_of(const Instruction& in) { return static_cast<int>(in.number >> 4 & 15); }

U32 address_of(const Warp& w, const Operand& op, int lane) { return static_cast<U32>(lane_address(w, op, lane)); }

// The operands that all forms share: op 0 D, 1 A, 2 B, 3 instruction descriptor.
void read_common(const Warp& w, const Instruction& in, int lane, TensorMma& mma) {
  mma.kind = kind_of(in);
  mma.cta_group = group_of(in);
  mma.scale_vec = static_cast<int>(in.number >> 8);
  mma.a_in_tmem = (in.flags & 1) != 0;
  mma.is_ws = (in.flags & 2) != 0;
  mma.d = address_of(w, in.op[0], lane);
  if (mma.a_in_tmem)
    mma.a_address = address_of(w, in.op[1], lane);
  else
    mma.a_descriptor = read_lane<U64>(w, in.op[1], lane);
  mma.b_descriptor = read_lane<U64>(w, in.op[2], lane);
  mma.shape = math::decode_instruction(mma.kind, read_lane<U32>(w, in.op[3], lane));
}

bool predicate_of(const Warp& w, const Operand& op, int lane) { return (w.read_predicate(op) >> lane & 1) != 0; }

// op 4: disabled lanes?, 5: enable-input-d, 6: scale-input-d?. Scaled: 4, 5: scales, 6: enable-input-d. .ws: 4:
// enable-input-d, 5: zero-column mask?. False after a report.
bool read_rest(Warp& w, const Instruction& in, int lane, TensorMma& mma) {
  if ((in.flags & 4) != 0) {
    mma.a_scale = address_of(w, in.op[4], lane);
    mma.b_scale = address_of(w, in.op[5], lane);
    mma.accumulate = predicate_of(w, in.op[6], lane);
    return true;
  }
  if (mma.is_ws) {
    mma.accumulate = predicate_of(w, in.op[4], lane);
    const bool has_mask = in.op[5].kind != Operand::Kind::none;
    if (has_mask && (read_lane<U64>(w, in.op[5], lane) >> 39 & 1) != 0) {
      w.fault(in, "not-supported", "semantics unknown: a zero-column mask (the sources contradict each other)");
      return false;
    }
    return true;
  }
  const Operand& lanes = in.op[4];
  mma.has_disabled_lanes = lanes.kind == Operand::Kind::list;
  for (int i = 0; i < lanes.count; ++i)
    mma.disabled_lanes[static_cast<std::size_t>(i)] = read_lane<U32>(w, lanes.elements[i], lane);
  mma.accumulate = predicate_of(w, in.op[5], lane);
  if (in.op[6].kind != Operand::Kind::none) mma.scale_input = static_cast<int>(in.op[6].value);
  return true;
}

Step issue(Warp& w, const Instruction& in, Mask active) {
  if (!enter_tensor_core(w, in, group_of(in))) return Step::fault;
  if (std::popcount(active) > 1)
    w.hazard(in, "tcgen05-many-lanes", first_lane(active), 0,
             fmt::format("{} lanes execute it: each starts its own operation", std::popcount(active)),
             "elect.sync or a compare with the thread index is missing around it");
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    TensorMma mma;
    read_common(w, in, lane, mma);
    if (!read_rest(w, in, lane, mma) || !check_mma(w, in, mma)) return Step::fault;
    w.launch->async.push(std::make_unique<MmaOperation>(w, in, lane, mma), *w.launch);
    if (w.launch->findings.has_failure()) return Step::fault;
  }
  return Step::next;
}

bool find_kind(const Decoded& d, Tcgen05Kind& kind) {
  constexpr std::string_view kNames[] = {"kind::f16",      "kind::tf32", "kind::f8f6f4",  "kind::i8",
                                         "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (!d.has(kNames[i])) continue;
    kind = static_cast<Tcgen05Kind>(i);
    return true;
  }
  return false;
}

// Scale factors per row, 0: no such combination. PTX ISA, "Valid combinations of scale_vectorsize".
unsigned find_scale_vec(const Decoded& d, Tcgen05Kind kind) {
  const bool none = !d.has("scale_vec::1X") && !d.has("scale_vec::2X") && !d.has("scale_vec::4X") &&
                    !d.has("block16") && !d.has("block32");
  if (kind == Tcgen05Kind::mxf8f6f4) return none || d.has("scale_vec::1X") || d.has("block32") ? 1 : 0;
  if (kind == Tcgen05Kind::mxf4) return none || d.has("scale_vec::2X") || d.has("block32") ? 2 : 0;
  if (d.has("scale_vec::2X") || d.has("block32")) return 2;
  return d.has("scale_vec::4X") || d.has("block16") ? 4 : 0;
}

}  // namespace

Handler tcgen05_mma(const Decoded& d) {
  Tcgen05Kind kind{};
  if (!find_kind(d, kind)) return nullptr;
  const unsigned group = d.has("cta_group::2") ? 2 : 1;
  const bool a_in_tmem = d.in->op[1].kind == Operand::Kind::address;
  const bool is_ws = d.form->mnemonic == "tcgen05.mma.ws";
  const bool is_scaled = d.has("block_scale");
  unsigned scale_vec = 0;
  if (is_scaled) {
    scale_vec = find_scale_vec(d, kind);
    if (scale_vec == 0) return nullptr;
  } else if (!is_ws) {
    const Operand& lanes = d.in->op[4];
    if (lanes.kind == Operand::Kind::list && lanes.count != 4 * group) return nullptr;
    const Operand& scale = d.in->op[6];
    if (scale.kind != Operand::Kind::none &&
        (scale.value < 0 || scale.value > 15 || (kind != Tcgen05Kind::f16 && kind != Tcgen05Kind::tf32)))
      return nullptr;
  }
  d.in->number = static_cast<U32>(kind) | group << 4 | scale_vec << 8;
  d.in->flags = static_cast<std::uint16_t>((a_in_tmem ? 1u : 0u) | (is_ws ? 2u : 0u) | (is_scaled ? 4u : 0u));
  return issue;
}

}  // namespace tessera::emulator::bind
