// PTX ISA, "Comparison and Selection Instructions": setp, set, selp, slct.
#include <bit>
#include <utility>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/instructions/wide.h"
#include "emulator/math/float_format.h"

namespace tessera::emulator::bind {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
constexpr std::string_view kCompareNames[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                              "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

/// Of two numbers one of four things is true; a comparison is a set of them.
constexpr unsigned kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8, kAny = 15;
constexpr unsigned kTruth[] = {kEqual,                 // eq
                               kLess | kGreater,       // ne
                               kLess,                  // lt
                               kLess | kEqual,         // le
                               kGreater,               // gt
                               kGreater | kEqual,      // ge
                               kEqual | kUnordered,    // equ
                               kAny ^ kEqual,          // neu
                               kLess | kUnordered,     // ltu
                               kAny ^ kGreater,        // leu
                               kGreater | kUnordered,  // gtu
                               kAny ^ kLess,           // geu
                               kAny ^ kUnordered,      // num
                               kUnordered};            // nan

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

/// The lanes of which this is true.
template <unsigned kWhat, class T, class Map>
[[gnu::always_inline]] inline Mask lanes_where(const T* a, const T* b) {
  alignas(64) std::uint8_t is_true[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto x = Map{}(a[lane]);
    const auto y = Map{}(b[lane]);
    is_true[lane] = kWhat == kLess ? x < y : kWhat == kEqual ? x == y : kWhat == kGreater ? x > y : !(x <= y || x > y);
  }
  return gather_flags(is_true);
}

// A set of one thing, or of all but one, is found at once.
template <class T, class Map>
[[gnu::always_inline]] inline Mask compare_all(unsigned truth, const T* a, const T* b) {
  const unsigned possible = std::is_integral_v<decltype(Map{}(*a))> ? kAny ^ kUnordered : kAny;
  truth &= possible;
  const bool is_turned = std::has_single_bit(possible ^ truth);
  if (is_turned) truth ^= possible;
  Mask result = 0;
  if ((truth & kLess) != 0) result |= lanes_where<kLess, T, Map>(a, b);
  if ((truth & kEqual) != 0) result |= lanes_where<kEqual, T, Map>(a, b);
  if ((truth & kGreater) != 0) result |= lanes_where<kGreater, T, Map>(a, b);
  if ((truth & kUnordered) != 0) result |= lanes_where<kUnordered, T, Map>(a, b);
  return is_turned ? ~result : result;
}
template <class T, class Map>
struct Plain {
  static Mask of(unsigned truth, const T* a, const T* b) { return compare_all<T, Map>(truth, a, b); }
};
#if defined(__x86_64__)
template <class T, class Map>
struct Avx512 {
  TESSERA_FOR_AVX512 static Mask of(unsigned truth, const T* a, const T* b) { return compare_all<T, Map>(truth, a, b); }
};
template <class T, class Map>
struct Avx2 {
  TESSERA_FOR_AVX2 static Mask of(unsigned truth, const T* a, const T* b) { return compare_all<T, Map>(truth, a, b); }
};
#endif

// flags: Combine | truth << 4.
template <class T, class All>
Mask compare(const Warp& w, const Instruction& in, int first) {
  alignas(64) T sa[kLanes];
  alignas(64) T sb[kLanes];
  return All::of(in.flags >> 4, source<T>(w, in.op[first], sa), source<T>(w, in.op[first + 1], sb));
}
Combine combine_of(const Instruction& in) { return static_cast<Combine>(in.flags & 15); }

// setp: op 0, 1 predicates p and q, 2, 3 sources, 4 the predicate to combine with.
template <class T, class All>
Step setp_handler(Warp& w, const Instruction& in, Mask active) {
  const Mask value = compare<T, All>(w, in, 2);
  const Combine how = combine_of(in);
  if (how == Combine::none) [[likely]] {
    write_predicate(w, in.op[0], active, value);
    write_predicate(w, in.op[1], active, ~value);
    return Step::next;
  }
  const Mask with = w.read_predicate(in.op[4]);
  write_predicate(w, in.op[0], active, combine(how, value, with));
  write_predicate(w, in.op[1], active, combine(how, ~value, with));
  return Step::next;
}

// set: op 0 register, 1, 2 sources, 3 the predicate. number: 1 when the result is a float's 1.0 instead of all ones.
template <class T, class All>
Step set_handler(Warp& w, const Instruction& in, Mask active) {
  Mask value = compare<T, All>(w, in, 1);
  if (combine_of(in) != Combine::none) value = combine(combine_of(in), value, w.read_predicate(in.op[3]));
  const U32 yes = in.number;
  return apply_lanes<U32>(w, in.op[0], active, [&](int lane) { return ((value >> lane) & 1) != 0 ? yes : 0u; });
}

template <class T, class Map>
Handler pick(bool is_setp) {
  return is_setp ? setp_handler<T, Plain<T, Map>> : set_handler<T, Plain<T, Map>>;
}
/// Of the types that kernels compare all the time.
template <class T, class Map>
Handler pick_busy(bool is_setp) {
#if defined(__x86_64__)
  if (is_setp && wide::here == wide::Vectors::avx512) return setp_handler<T, Avx512<T, Map>>;
  if (is_setp && wide::here == wide::Vectors::avx2) return setp_handler<T, Avx2<T, Map>>;
#endif
  return pick<T, Map>(is_setp);
}

Handler pick_by_type(const Decoded& d, bool is_setp, Type type) {
  switch (type) {
    case Type::b16:
    case Type::u16:
      return pick_busy<U16, Same>(is_setp);
    case Type::s16:
      return pick_busy<std::int16_t, Same>(is_setp);
    case Type::b32:
    case Type::u32:
      return pick_busy<U32, Same>(is_setp);
    case Type::s32:
      return pick_busy<std::int32_t, Same>(is_setp);
    case Type::b64:
    case Type::u64:
      return pick_busy<U64, Same>(is_setp);
    case Type::s64:
      return pick_busy<std::int64_t, Same>(is_setp);
    case Type::f32:
      return d.has("ftz") ? pick_busy<float, Flushed>(is_setp) : pick_busy<float, Same>(is_setp);
    case Type::f64:
      return pick_busy<double, Same>(is_setp);
    case Type::f16:
      return d.has("ftz") ? pick<U16, DecodeFlushed>(is_setp) : pick<U16, Decode<math::Format::f16>>(is_setp);
    case Type::bf16:
      return pick<U16, Decode<math::Format::bf16>>(is_setp);
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

// Both halves of packed pairs: the masks of the lower and of the upper ones.
template <math::Format F>
std::pair<Mask, Mask> compare_pairs(Warp& w, const Instruction& in, Compare op, int first) {
  const unsigned truth = kTruth[static_cast<std::size_t>(op)];
  const auto half = [truth](U32 a, U32 b) {
    const double x = math::decode<F>(a & 0xFFFF);
    const double y = math::decode<F>(b & 0xFFFF);
    return (truth & (x < y ? kLess : x > y ? kGreater : x == y ? kEqual : kUnordered)) != 0;
  };
  return {compare_lanes<U32>(w, in.op[first], in.op[first + 1], half),
          compare_lanes<U32>(w, in.op[first], in.op[first + 1], [&](U32 a, U32 b) { return half(a >> 16, b >> 16); })};
}

// setp.f16x2: p compares the lower halves, q the upper ones.
template <math::Format F>
Step setp_pair(Warp& w, const Instruction& in, Mask active) {
  auto [low, high] = compare_pairs<F>(w, in, static_cast<Compare>(in.number), 2);
  if (combine_of(in) != Combine::none) {
    const Mask with = w.read_predicate(in.op[4]);
    low = combine(combine_of(in), low, with);
    high = combine(combine_of(in), high, with);
  }
  write_predicate(w, in.op[0], active, low);
  write_predicate(w, in.op[1], active, high);
  return Step::next;
}

// set.f16x2: each half becomes 1.0, or all ones where the result is an integer. number: Compare | the value << 8.
template <math::Format F>
Step set_pair(Warp& w, const Instruction& in, Mask active) {
  auto [low, high] = compare_pairs<F>(w, in, static_cast<Compare>(in.number & 0xFF), 1);
  if (combine_of(in) != Combine::none) {
    const Mask with = w.read_predicate(in.op[3]);
    low = combine(combine_of(in), low, with);
    high = combine(combine_of(in), high, with);
  }
  const U32 yes = in.number >> 8;
  return apply_lanes<U32>(w, in.op[0], active, [&, low_mask = low, high_mask = high](int lane) {
    return ((low_mask >> lane & 1) != 0 ? yes : 0u) | ((high_mask >> lane & 1) != 0 ? yes << 16 : 0u);
  });
}

#if defined(__x86_64__)
template <class T>
[[gnu::always_inline]] inline Step select_words(Warp& w, const Instruction& in, Mask active) {
  const Mask p = w.read_predicate(in.op[3]);
  const T* a = w.reg<T>(in.op[1].offset);
  const T* b = w.reg<T>(in.op[2].offset);
  T* d = w.reg<T>(in.op[0].offset);
  TESSERA_LANE_LOOP
  for (int lane = 0; lane < kLanes; ++lane) {
    const T taken = (p >> lane & 1) != 0 ? a[lane] : b[lane];
    d[lane] = (active >> lane & 1) != 0 ? taken : d[lane];
  }
  return Step::next;
}
template <class T>
TESSERA_FOR_AVX512 Step select_avx512(Warp& w, const Instruction& in, Mask active) {
  return select_words<T>(w, in, active);
}
template <class T>
TESSERA_FOR_AVX2 Step select_avx2(Warp& w, const Instruction& in, Mask active) {
  return select_words<T>(w, in, active);
}
#endif
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
  d.in->flags |= static_cast<U16>(kTruth[static_cast<std::size_t>(op)] << 4);
  return pick_by_type(d, true, d.type());
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
  d.in->flags |= static_cast<U16>(kTruth[static_cast<std::size_t>(op)] << 4);
  return pick_by_type(d, false, d.type(1));
}
Handler selp(const Decoded& d) {
#if defined(__x86_64__)
  const Operand* op = d.in->op;
  const int bytes = bits_of(d.type()) / 8;
  if (wide::here != wide::Vectors::none && bytes >= 4 && op[0].bytes == bytes && op[1].bytes == bytes &&
      op[2].bytes == bytes) {
    if (bytes == 8) return wide::here == wide::Vectors::avx512 ? select_avx512<U64> : select_avx2<U64>;
    return wide::here == wide::Vectors::avx512 ? select_avx512<U32> : select_avx2<U32>;
  }
#endif
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
