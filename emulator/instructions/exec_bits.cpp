// PTX ISA, "Logic and Shift Instructions", and the bit instructions of "Integer Arithmetic Instructions".
#include "emulator/instructions/bind.h"
#include "emulator/instructions/integer_ops.h"
#include "emulator/instructions/lanes.h"
#include "emulator/instructions/wide.h"

namespace tessera::emulator::bind {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

template <class F, class T>
Step binary(Warp& w, const Instruction& in, Mask active) {
  return lift2<T, T, T>(w, in, active, [](T a, T b) { return F{}(a, b); });
}
template <class F>
Step binary_predicate(Warp& w, const Instruction& in, Mask active) {
  write_predicate(w, in.op[0], active, F{}(w.read_predicate(in.op[1]), w.read_predicate(in.op[2])));
  return Step::next;
}
template <class F>
Handler pick_logic(const Decoded& d) {
  switch (bits_of(d.type())) {
    case 1:
      return binary_predicate<F>;
    case 16:
      return binary<F, U16>;
    case 32:
      return wide::or_plain<F, U32, U32, U32>(d, binary<F, U32>);
    default:
      return wide::or_plain<F, U64, U64, U64>(d, binary<F, U64>);
  }
}

struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
template <class T>
Step invert(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) { return static_cast<T>(~a); });
}
Step invert_predicate(Warp& w, const Instruction& in, Mask active) {
  write_predicate(w, in.op[0], active, ~w.read_predicate(in.op[1]));
  return Step::next;
}
template <class T>
Step is_zero(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) { return static_cast<T>(a == 0 ? 1 : 0); });
}

Step lop3_table(Warp& w, const Instruction& in, Mask active) {
  const U32 table = in.number;
  return lift3<U32, U32, U32, U32>(w, in, active, [table](U32 a, U32 b, U32 c) { return ops::lop3(a, b, c, table); });
}

struct ShiftLeft {
  template <class T>
  T operator()(T a, U32 n) const {
    return ops::shl(a, n);
  }
};
template <class T>
struct ShiftRight {
  T operator()(T a, U32 n) const { return ops::shr(a, n); }
};
template <class T>
Step shift_left(Warp& w, const Instruction& in, Mask active) {
  return lift2<T, T, U32>(w, in, active, [](T a, U32 n) { return ops::shl(a, n); });
}
template <class T>
Step shift_right(Warp& w, const Instruction& in, Mask active) {
  return lift2<T, T, U32>(w, in, active, [](T a, U32 n) { return ops::shr(a, n); });
}
/// shf.wrap, of 32 bits alone: what vectors have shifts for.
template <bool kLeft>
struct Funnel {
  U32 operator()(U32 a, U32 b, U32 c) const {
    const U32 n = c & 31;
    return kLeft ? (b << n) | ((a >> 1) >> (31 - n)) : (a >> n) | ((b << 1) << (31 - n));
  }
};
template <bool kLeft, bool kClamp>
Step funnel(Warp& w, const Instruction& in, Mask active) {
  return lift3<U32, U32, U32, U32>(w, in, active, [](U32 a, U32 b, U32 c) {
    const U32 n = kClamp ? (c < 32 ? c : 32) : c & 31;
    return kLeft ? (n == 32 ? a : ops::funnel_left(a, b, n)) : ops::funnel_right(a, b, n);
  });
}
template <class T>
Step count_ones(Warp& w, const Instruction& in, Mask active) {
  return lift1<U32, T>(w, in, active, [](T a) { return static_cast<U32>(std::popcount(a)); });
}
template <class T>
Step count_leading_zeros(Warp& w, const Instruction& in, Mask active) {
  return lift1<U32, T>(w, in, active, [](T a) { return static_cast<U32>(std::countl_zero(a)); });
}
struct Reverse {
  // Halves, quarters, ... change places: the mask has the lower one of each pair.
  template <class T>
  T operator()(T a) const {
    T mask = static_cast<T>(~T{0});
    for (unsigned n = 4 * sizeof(T); n != 0; n /= 2) {
      mask = static_cast<T>(mask ^ (mask << n));
      a = static_cast<T>(((a >> n) & mask) | ((a & mask) << n));
    }
    return a;
  }
};
template <class T>
Step reverse(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) { return ops::brev(a); });
}
template <class T>
Step find_bit(Warp& w, const Instruction& in, Mask active) {
  const bool shift = in.flags != 0;
  return lift1<U32, T>(w, in, active, [shift](T a) { return ops::bfind(a, shift); });
}
template <class T>
Step extract(Warp& w, const Instruction& in, Mask active) {
  return lift3<T, T, U32, U32>(w, in, active, [](T a, U32 b, U32 c) { return ops::bfe(a, b, c); });
}
template <class T>
Step insert(Warp& w, const Instruction& in, Mask active) {
  T sa[kLanes];
  T sb[kLanes];
  U32 sc[kLanes];
  U32 sd[kLanes];
  const T* a = source<T>(w, in.op[1], sa);
  const T* b = source<T>(w, in.op[2], sb);
  const U32* c = source<U32>(w, in.op[3], sc);
  const U32* n = source<U32>(w, in.op[4], sd);
  return apply_lanes<T>(w, in.op[0], active, [&](int l) { return ops::bfi(a[l], b[l], c[l], n[l]); });
}
Step bit_mask(Warp& w, const Instruction& in, Mask active) {
  const bool clamp = in.flags != 0;
  return lift2<U32, U32, U32>(w, in, active, [clamp](U32 a, U32 b) { return ops::bmsk(a, b, clamp); });
}
Step permute(Warp& w, const Instruction& in, Mask active) {
  return lift3<U32, U32, U32, U32>(w, in, active, ops::prmt);
}
Step permute_mode(Warp& w, const Instruction& in, Mask active) {
  const auto mode = static_cast<ops::PrmtMode>(in.flags);
  return lift3<U32, U32, U32, U32>(w, in, active,
                                   [mode](U32 a, U32 b, U32 c) { return ops::prmt_mode(a, b, c, mode); });
}

}  // namespace

Handler logic(const Decoded& d) {
  const char first = d.form->mnemonic[0];
  return first == 'a' ? pick_logic<And>(d) : first == 'o' ? pick_logic<Or>(d) : pick_logic<Xor>(d);
}
Handler not_(const Decoded& d) {
  switch (bits_of(d.type())) {
    case 1:
      return invert_predicate;
    case 16:
      return invert<U16>;
    case 32:
      return wide::or_plain<Not, U32, U32>(d, invert<U32>);
    default:
      return wide::or_plain<Not, U64, U64>(d, invert<U64>);
  }
}
Handler cnot(const Decoded& d) {
  return bits_of(d.type()) == 16 ? is_zero<U16> : bits_of(d.type()) == 32 ? is_zero<U32> : is_zero<U64>;
}
Handler lop3(const Decoded& d) {
  const auto table = static_cast<std::uint64_t>(d.in->op[4].value);
  d.in->number = static_cast<U32>(table);
  return table < 256 ? lop3_table : nullptr;
}
Handler shl(const Decoded& d) {
  if (bits_of(d.type()) == 32) return wide::or_plain<ShiftLeft, U32, U32, U32>(d, shift_left<U32>);
  if (bits_of(d.type()) == 16) return shift_left<U16>;
  return wide::or_plain<ShiftLeft, U64, U64, U32>(d, shift_left<U64>);
}
Handler shr(const Decoded& d) {
  switch (d.type()) {
    case Type::s16:
      return shift_right<std::int16_t>;
    case Type::s32:
      return wide::or_plain<ShiftRight<std::int32_t>, std::int32_t, std::int32_t, U32>(d, shift_right<std::int32_t>);
    case Type::s64:
      return shift_right<std::int64_t>;
    default:
      break;
  }
  if (bits_of(d.type()) == 32) return wide::or_plain<ShiftRight<U32>, U32, U32, U32>(d, shift_right<U32>);
  if (bits_of(d.type()) == 16) return shift_right<U16>;
  return wide::or_plain<ShiftRight<U64>, U64, U64, U32>(d, shift_right<U64>);
}
Handler shf(const Decoded& d) {
  if (d.has("clamp")) return d.has("l") ? funnel<true, true> : funnel<false, true>;
  if (d.has("l")) return wide::or_plain<Funnel<true>, U32, U32, U32, U32>(d, funnel<true, false>);
  return wide::or_plain<Funnel<false>, U32, U32, U32, U32>(d, funnel<false, false>);
}
Handler popc(const Decoded& d) { return bits_of(d.type()) == 32 ? count_ones<U32> : count_ones<U64>; }
Handler clz(const Decoded& d) { return bits_of(d.type()) == 32 ? count_leading_zeros<U32> : count_leading_zeros<U64>; }
Handler brev(const Decoded& d) {
  if (bits_of(d.type()) == 32) return wide::or_plain<Reverse, U32, U32>(d, reverse<U32>);
  return wide::or_plain<Reverse, U64, U64>(d, reverse<U64>);
}
Handler bfind(const Decoded& d) {
  d.in->flags = d.has("shiftamt") ? 1 : 0;
  switch (d.type()) {
    case Type::u32:
      return find_bit<U32>;
    case Type::s32:
      return find_bit<std::int32_t>;
    case Type::u64:
      return find_bit<U64>;
    default:
      return find_bit<std::int64_t>;
  }
}
Handler bfe(const Decoded& d) {
  switch (d.type()) {
    case Type::u32:
      return extract<U32>;
    case Type::s32:
      return extract<std::int32_t>;
    case Type::u64:
      return extract<U64>;
    default:
      return extract<std::int64_t>;
  }
}
Handler bfi(const Decoded& d) { return bits_of(d.type()) == 32 ? insert<U32> : insert<U64>; }
Handler bmsk(const Decoded& d) {
  d.in->flags = d.has("clamp") ? 1 : 0;
  return bit_mask;
}
Handler prmt(const Decoded& d) {
  constexpr std::string_view kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  for (std::uint16_t i = 0; i < 6; ++i) {
    if (!d.has(kModes[i])) continue;
    d.in->flags = i;
    return permute_mode;
  }
  return permute;
}

}  // namespace tessera::emulator::bind
