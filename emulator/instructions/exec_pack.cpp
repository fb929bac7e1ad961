// PTX ISA: small integers in one register: dp2a, szext, fns, cvt.pack; and lop3 with a predicate result.
#include <algorithm>
#include <limits>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/integer_ops.h"
#include "emulator/instructions/lanes.h"

namespace tessera::emulator::bind {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

// flags: 1 a signed, 2 b signed, 4 the upper bytes of b.
Step dot_two(Warp& w, const Instruction& in, Mask active) {
  const unsigned flags = in.flags;
  return lift3<U32, U32, U32, U32>(w, in, active, [flags](U32 a, U32 b, U32 c) {
    U32 sum = c;
    for (unsigned i = 0; i < 2; ++i) {
      const U32 half = a >> (16 * i) & 0xFFFF;
      const U32 byte = b >> (8 * (i + (flags & 4) / 2)) & 0xFF;
      const U32 x = (flags & 1) != 0 ? static_cast<U32>(static_cast<S32>(static_cast<std::int16_t>(half))) : half;
      const U32 y = (flags & 2) != 0 ? static_cast<U32>(static_cast<S32>(static_cast<std::int8_t>(byte))) : byte;
      sum += x * y;
    }
    return sum;
  });
}

// flags: 1 signed, 2 clamp.
Step extend(Warp& w, const Instruction& in, Mask active) {
  const bool is_signed = (in.flags & 1) != 0;
  const bool clamps = (in.flags & 2) != 0;
  return lift2<U32, U32, U32>(w, in, active, [=](U32 a, U32 n) {
    if (clamps && n >= 32) return a;
    const U32 bits = n & 31;
    if (bits == 0) return U32{0};
    const U32 mask = ~U32{0} << bits;
    return (a & ~mask) | (is_signed && (a >> (bits - 1) & 1) != 0 ? mask : 0);
  });
}

// The assembler counts bits and compares |offset| as a signed number: the one that has no positive twin passes for
// "enough bits" and ends at bit 31 of the reversed mask.
U32 nth_set_bit(U32 mask, U32 base, S32 offset) {
  if (offset == std::numeric_limits<S32>::min()) return 0;
  if (base > 31) return ~U32{0};
  if (offset == 0) return (mask >> base & 1) != 0 ? base : ~U32{0};
  S64 left = offset > 0 ? S64{offset} : -S64{offset};
  const int step = offset > 0 ? 1 : -1;
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step)
    if ((mask >> at & 1) != 0 && --left == 0) return static_cast<U32>(at);
  return ~U32{0};
}
Step find_nth(Warp& w, const Instruction& in, Mask active) {
  return lift3<U32, U32, U32, S32>(w, in, active, nth_set_bit);
}

// flags: bits of a part | 64 signed; op[3] holds what comes above the two parts.
U32 saturate(S32 value, unsigned flags) {
  const unsigned bits = flags & 63;
  const bool is_signed = (flags & 64) != 0;
  const S64 most = (S64{1} << (is_signed ? bits - 1 : bits)) - 1;
  const S64 least = is_signed ? -most - 1 : 0;
  return static_cast<U32>(std::clamp<S64>(value, least, most)) & ((U32{1} << bits) - 1);
}
Step pack_two(Warp& w, const Instruction& in, Mask active) {
  const unsigned flags = in.flags;
  return lift2<U32, S32, S32>(
      w, in, active, [flags](S32 a, S32 b) { return saturate(a, flags) << (flags & 63) | saturate(b, flags); });
}
Step pack_three(Warp& w, const Instruction& in, Mask active) {
  const unsigned flags = in.flags;
  return lift3<U32, S32, S32, U32>(w, in, active, [flags](S32 a, S32 b, U32 c) {
    const unsigned bits = flags & 63;
    return c << (2 * bits) | saturate(a, flags) << bits | saturate(b, flags);
  });
}

// op: d, p, a, b, c, table, q. flags: 1 .and, else .or.
Step lop3_with_predicate(Warp& w, const Instruction& in, Mask active) {
  const U32 table = in.number;
  U32 result[kLanes];
  Mask nonzero = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    result[lane] = ops::lop3(read_lane<U32>(w, in.op[2], lane), read_lane<U32>(w, in.op[3], lane),
                             read_lane<U32>(w, in.op[4], lane), table);
    nonzero |= static_cast<Mask>(result[lane] != 0 ? 1 : 0) << lane;
  }
  const Mask q = w.read_predicate(in.op[6]);
  store_lanes(w, in.op[0], active, result);
  write_predicate(w, in.op[1], active, in.flags != 0 ? nonzero & q : nonzero | q);
  return Step::next;
}

}  // namespace

Handler dp2a(const Decoded& d) {
  d.in->flags =
      static_cast<U16>((d.type(0) == Type::s32 ? 1 : 0) | (d.type(1) == Type::s32 ? 2 : 0) | (d.has("hi") ? 4 : 0));
  return dot_two;
}
Handler szext(const Decoded& d) {
  d.in->flags = static_cast<U16>((d.type() == Type::s32 ? 1 : 0) | (d.has("clamp") ? 2 : 0));
  return extend;
}
Handler fns(const Decoded&) { return find_nth; }
Handler cvt_pack(const Decoded& d) {
  const Type type = d.type();
  const bool is_signed = type == Type::s16 || type == Type::s8 || type == Type::s4 || type == Type::s2;
  d.in->flags = static_cast<U16>(bits_of(type) | (is_signed ? 64 : 0));
  return d.num_types == 3 ? pack_three : pack_two;
}
Handler lop3_predicate(const Decoded& d) {
  const auto table = static_cast<std::uint64_t>(d.in->op[5].value);
  d.in->number = static_cast<U32>(table);
  d.in->flags = d.has("and") ? 1 : 0;
  return table < 256 ? lop3_with_predicate : nullptr;
}

}  // namespace tessera::emulator::bind
