// PTX ISA, "Comparison and Selection Instructions": setp, set, selp, slct.
#include <cmath>
#include <utility>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/float_format.h"

namespace tessera::emulator::bind {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
constexpr std::string_view kCompareNames[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                              "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

template <Compare kOp, class T>
inline bool compare(T a, T b) {
  if constexpr (kOp == Compare::eq) return a == b;
  if constexpr (kOp == Compare::ne) return std::is_floating_point_v<T> ? a < b || a > b : a != b;
  if constexpr (kOp == Compare::lt) return a < b;
  if constexpr (kOp == Compare::le) return a <= b;
  if constexpr (kOp == Compare::gt) return a > b;
  if constexpr (kOp == Compare::ge) return a >= b;
  if constexpr (kOp == Compare::equ) return !(a < b || a > b);
  if constexpr (kOp == Compare::neu) return a != b;
  if constexpr (kOp == Compare::ltu) return !(a >= b);
  if constexpr (kOp == Compare::leu) return !(a > b);
  if constexpr (kOp == Compare::gtu) return !(a <= b);
  if constexpr (kOp == Compare::geu) return !(a < b);
  if constexpr (kOp == Compare::num) return a == a && b == b;
  return a != a || b != b;
}

enum class Combine : std::uint8_t { none, and_, or_, xor_ };

Mask combine(Combine how, Mask value, Mask with) {
  switch (how) {
    case Combine::and_:
      return value & with;
    case Combine::or_:
      return value | with;
    case Combine::xor_:
      return value ^ with;
    default:
      return value;
  }
}

// T is what the registers hold, V what is compared: floats may be flushed, halves are decoded.
struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
struct Flushed {
  float operator()(float a) const { return math::float_of(math::flush_f32(math::bits_of(a))); }
};
template <math::Format F>
struct Decode {
  float operator()(U16 a) const { return static_cast<float>(math::decode<F>(a)); }
};
struct DecodeFlushed {
  float operator()(U16 a) const {
    return static_cast<float>(math::decode<math::Format::f16>((a & 0x7C00) == 0 ? a & 0x8000 : a));
  }
};

template <class T, class Map, Compare kOp>
Mask compare_all(Warp& w, const Instruction& in, int first) {
  return compare_lanes<T>(w, in.op[first], in.op[first + 1], [](T a, T b) { return compare<kOp>(Map{}(a), Map{}(b)); });
}

// setp: op 0, 1 predicates p and q, 2, 3 sources, 4 the predicate to combine with. flags: Combine.
template <class T, class Map, Compare kOp>
Step setp_handler(Warp& w, const Instruction& in, Mask active) {
  const Mask value = compare_all<T, Map, kOp>(w, in, 2);
  if (in.flags == 0) [[likely]] {
    write_predicate(w, in.op[0], active, value);
    write_predicate(w, in.op[1], active, ~value);
    return Step::next;
  }
  const Mask with = w.read_predicate(in.op[4]);
  const auto how = static_cast<Combine>(in.flags);
  write_predicate(w, in.op[0], active, combine(how, value, with));
  write_predicate(w, in.op[1], active, combine(how, ~value, with));
  return Step::next;
}

// set: op 0 register, 1, 2 sources, 3 the predicate. number: 1 when the result is a float's 1.0 instead of all ones.
template <class T, class Map, Compare kOp>
Step set_handler(Warp& w, const Instruction& in, Mask active) {
  Mask value = compare_all<T, Map, kOp>(w, in, 1);
  if (in.flags != 0) value = combine(static_cast<Combine>(in.flags), value, w.read_predicate(in.op[3]));
  const U32 yes = in.number;
  return apply_lanes<U32>(w, in.op[0], active, [&](int lane) { return ((value >> lane) & 1) != 0 ? yes : 0u; });
}

template <class T, class Map, std::size_t... I>
constexpr std::array<Handler, 14> setp_handlers(std::index_sequence<I...>) {
  return {setp_handler<T, Map, static_cast<Compare>(I)>...};
}
template <class T, class Map, std::size_t... I>
constexpr std::array<Handler, 14> set_handlers(std::index_sequence<I...>) {
  return {set_handler<T, Map, static_cast<Compare>(I)>...};
}
template <class T, class Map>
Handler pick(bool is_setp, Compare op) {
  static constexpr auto kSetp = setp_handlers<T, Map>(std::make_index_sequence<14>{});
  static constexpr auto kSet = set_handlers<T, Map>(std::make_index_sequence<14>{});
  return (is_setp ? kSetp : kSet)[static_cast<std::size_t>(op)];
}

Handler pick_by_type(const Decoded& d, bool is_setp, Type type, Compare op) {
  switch (type) {
    case Type::b16:
    case Type::u16:
      return pick<U16, Same>(is_setp, op);
    case Type::s16:
      return pick<std::int16_t, Same>(is_setp, op);
    case Type::b32:
    case Type::u32:
      return pick<U32, Same>(is_setp, op);
    case Type::s32:
      return pick<std::int32_t, Same>(is_setp, op);
    case Type::b64:
    case Type::u64:
      return pick<U64, Same>(is_setp, op);
    case Type::s64:
      return pick<std::int64_t, Same>(is_setp, op);
    case Type::f32:
      return d.has("ftz") ? pick<float, Flushed>(is_setp, op) : pick<float, Same>(is_setp, op);
    case Type::f64:
      return pick<double, Same>(is_setp, op);
    case Type::f16:
      return d.has("ftz") ? pick<U16, DecodeFlushed>(is_setp, op) : pick<U16, Decode<math::Format::f16>>(is_setp, op);
    case Type::bf16:
      return pick<U16, Decode<math::Format::bf16>>(is_setp, op);
    default:
      return nullptr;
  }
}

// lo, ls, hi, hs are the unsigned spellings.
bool find_compare(const Decoded& d, Compare& op) {
  for (std::size_t i = 0; i < 14; ++i) {
    if (!d.has(kCompareNames[i])) continue;
    op = static_cast<Compare>(i);
    return true;
  }
  op = d.has("lo") ? Compare::lt : d.has("ls") ? Compare::le : d.has("hi") ? Compare::gt : Compare::ge;
  return d.has("lo") || d.has("ls") || d.has("hi") || d.has("hs");
}
std::uint16_t combine_flag(const Decoded& d) {
  return static_cast<U16>(d.has("and")   ? Combine::and_
                          : d.has("or")  ? Combine::or_
                          : d.has("xor") ? Combine::xor_
                                         : Combine::none);
}

// A comparison chosen at run time, of decoded halves.
bool compare_values(Compare op, double x, double y) {
  switch (op) {
    case Compare::eq:
      return x == y;
    case Compare::ne:
      return x < y || x > y;
    case Compare::lt:
      return x < y;
    case Compare::le:
      return x <= y;
    case Compare::gt:
      return x > y;
    case Compare::ge:
      return x >= y;
    case Compare::equ:
      return !(x < y || x > y);
    case Compare::neu:
      return x != y;
    case Compare::ltu:
      return !(x >= y);
    case Compare::leu:
      return !(x > y);
    case Compare::gtu:
      return !(x <= y);
    case Compare::geu:
      return !(x < y);
    case Compare::num:
      return x == x && y == y;
    case Compare::nan:
      return x != x || y != y;
  }
  return false;
}

// Both halves of packed pairs: the masks of the lower and of the upper ones.
template <math::Format F>
std::pair<Mask, Mask> compare_pairs(Warp& w, const Instruction& in, Compare op, int first) {
  const auto half = [op](U32 a, U32 b) {
    return compare_values(op, math::decode<F>(a & 0xFFFF), math::decode<F>(b & 0xFFFF));
  };
  return {compare_lanes<U32>(w, in.op[first], in.op[first + 1], half),
          compare_lanes<U32>(w, in.op[first], in.op[first + 1], [&](U32 a, U32 b) { return half(a >> 16, b >> 16); })};
}

// setp.f16x2: p compares the lower halves, q the upper ones.
template <math::Format F>
Step setp_pair(Warp& w, const Instruction& in, Mask active) {
  auto [low, high] = compare_pairs<F>(w, in, static_cast<Compare>(in.number), 2);
  if (in.flags != 0) {
    const Mask with = w.read_predicate(in.op[4]);
    low = combine(static_cast<Combine>(in.flags), low, with);
    high = combine(static_cast<Combine>(in.flags), high, with);
  }
  write_predicate(w, in.op[0], active, low);
  write_predicate(w, in.op[1], active, high);
  return Step::next;
}

// set.f16x2: each half becomes 1.0, or all ones where the result is an integer. number: Compare | the value << 8.
template <math::Format F>
Step set_pair(Warp& w, const Instruction& in, Mask active) {
  auto [low, high] = compare_pairs<F>(w, in, static_cast<Compare>(in.number & 0xFF), 1);
  if (in.flags != 0) {
    const Mask with = w.read_predicate(in.op[3]);
    low = combine(static_cast<Combine>(in.flags), low, with);
    high = combine(static_cast<Combine>(in.flags), high, with);
  }
  const U32 yes = in.number >> 8;
  return apply_lanes<U32>(w, in.op[0], active, [&, low_mask = low, high_mask = high](int lane) {
    return ((low_mask >> lane & 1) != 0 ? yes : 0u) | ((high_mask >> lane & 1) != 0 ? yes << 16 : 0u);
  });
}

template <class T>
Step select(Warp& w, const Instruction& in, Mask active) {
  const Mask p = w.read_predicate(in.op[3]);
  T sa[kLanes];
  T sb[kLanes];
  const T* a = source<T>(w, in.op[1], sa);
  const T* b = source<T>(w, in.op[2], sb);
  return apply_lanes<T>(w, in.op[0], active, [&](int lane) { return ((p >> lane) & 1) != 0 ? a[lane] : b[lane]; });
}
template <class T, class C, bool kFtz>
Step select_sign(Warp& w, const Instruction& in, Mask active) {
  return lift3<T, T, T, C>(w, in, active, [](T a, T b, C c) {
    if constexpr (kFtz) c = Flushed{}(c);
    return c >= 0 ? a : b;
  });
}

}  // namespace

Handler setp(const Decoded& d) {
  Compare op{};
  if (!find_compare(d, op)) return nullptr;
  d.in->flags = combine_flag(d);
  if ((d.in->flags != 0) != (d.in->op[4].kind != Operand::Kind::none)) return nullptr;
  d.in->number = static_cast<U32>(op);
  if (d.type() == Type::f16x2) return setp_pair<math::Format::f16>;
  if (d.type() == Type::bf16x2) return setp_pair<math::Format::bf16>;
  return pick_by_type(d, true, d.type(), op);
}
Handler set(const Decoded& d) {
  Compare op{};
  if (!find_compare(d, op)) return nullptr;
  d.in->flags = combine_flag(d);
  if ((d.in->flags != 0) != (d.in->op[3].kind != Operand::Kind::none)) return nullptr;
  const Type to = d.type(0);
  if (d.type(1) == Type::f16x2 || d.type(1) == Type::bf16x2) {
    const U32 yes = to == Type::f16x2 ? 0x3C00 : to == Type::bf16x2 ? 0x3F80 : 0xFFFF;
    d.in->number = static_cast<U32>(op) | yes << 8;
    return d.type(1) == Type::f16x2 ? set_pair<math::Format::f16> : set_pair<math::Format::bf16>;
  }
  d.in->number = to == Type::f32 ? 0x3F800000 : to == Type::f16 ? 0x3C00 : to == Type::bf16 ? 0x3F80 : 0xFFFFFFFF;
  return pick_by_type(d, false, d.type(1), op);
}
Handler selp(const Decoded& d) {
  return bits_of(d.type()) == 16 ? select<U16> : bits_of(d.type()) == 32 ? select<U32> : select<U64>;
}
Handler slct(const Decoded& d) {
  const int bits = bits_of(d.type(0));
  if (d.type(1) == Type::s32)
    return bits == 16   ? select_sign<U16, std::int32_t, false>
           : bits == 32 ? select_sign<U32, std::int32_t, false>
                        : select_sign<U64, std::int32_t, false>;
  if (d.has("ftz"))
    return bits == 16   ? select_sign<U16, float, true>
           : bits == 32 ? select_sign<U32, float, true>
                        : select_sign<U64, float, true>;
  return bits == 16   ? select_sign<U16, float, false>
         : bits == 32 ? select_sign<U32, float, false>
                      : select_sign<U64, float, false>;
}

}  // namespace tessera::emulator::bind
