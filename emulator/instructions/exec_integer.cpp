// PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions".
#include "emulator/instructions/bind.h"
#include "emulator/instructions/integer_ops.h"
#include "emulator/instructions/lanes.h"
#include "emulator/instructions/wide.h"

namespace tessera::emulator::bind {
namespace {

template <class F, class T>
Step unary(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) { return F{}(a); });
}
template <class F, class T>
Step binary(Warp& w, const Instruction& in, Mask active) {
  return lift2<T, T, T>(w, in, active, [](T a, T b) { return F{}(a, b); });
}
template <class F, class T>
Step ternary(Warp& w, const Instruction& in, Mask active) {
  return lift3<T, T, T, T>(w, in, active, [](T a, T b, T c) { return F{}(a, b, c); });
}

/// Instantiates a handler for the integer type of slot 0.
#define TESSERA_PICK_INT(handler, F)    \
  switch (d.type()) {                   \
    case Type::u16:                     \
      return handler<F, std::uint16_t>; \
    case Type::s16:                     \
      return handler<F, std::int16_t>;  \
    case Type::u32:                     \
      return handler<F, std::uint32_t>; \
    case Type::s32:                     \
      return handler<F, std::int32_t>;  \
    case Type::u64:                     \
      return handler<F, std::uint64_t>; \
    case Type::s64:                     \
      return handler<F, std::int64_t>;  \
    default:                            \
      return nullptr;                   \
  }

/// The same where the sign does not matter; 32 bits also for wide vectors.
template <class F>
Handler binary_signless(const Decoded& d) {
  const int bits = bits_of(d.type());
  if (bits == 32) return wide::or_plain<F, std::uint32_t, std::uint32_t, std::uint32_t>(d, binary<F, std::uint32_t>);
  if (bits == 64) return wide::or_plain<F, std::uint64_t, std::uint64_t, std::uint64_t>(d, binary<F, std::uint64_t>);
  return wide::or_plain<F, std::uint16_t, std::uint16_t, std::uint16_t>(d, binary<F, std::uint16_t>);
}
/// Of 32 bits, the sign counts; also for wide vectors. Other widths: null.
template <class F>
Handler wide_binary(const Decoded& d) {
  using S = std::int32_t;
  using U = std::uint32_t;
  if (d.type() == Type::s32) return wide::or_plain<F, S, S, S>(d, binary<F, S>);
  return d.type() == Type::u32 ? wide::or_plain<F, U, U, U>(d, binary<F, U>) : nullptr;
}
template <class F>
Handler wide_unary(const Decoded& d) {
  using S = std::int32_t;
  return d.type() == Type::s32 ? wide::or_plain<F, S, S>(d, unary<F, S>) : nullptr;
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return ops::wrap_add(a, b);
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return ops::wrap_sub(a, b);
  }
};
struct AddSat {
  template <class T>
  T operator()(T a, T b) const {
    return ops::add_sat(a, b);
  }
};
struct SubSat {
  template <class T>
  T operator()(T a, T b) const {
    return ops::sub_sat(a, b);
  }
};
struct MulLo {
  template <class T>
  T operator()(T a, T b) const {
    return ops::mul_lo(a, b);
  }
};
struct MulHi {
  template <class T>
  T operator()(T a, T b) const {
    return ops::mul_hi(a, b);
  }
};
struct MadLo {
  template <class T>
  T operator()(T a, T b, T c) const {
    return ops::wrap_add(ops::mul_lo(a, b), c);
  }
};
struct MadHi {
  template <class T>
  T operator()(T a, T b, T c) const {
    return ops::wrap_add(ops::mul_hi(a, b), c);
  }
};
struct Sad {
  template <class T>
  T operator()(T a, T b, T c) const {
    return ops::wrap_add(c, a < b ? ops::wrap_sub(b, a) : ops::wrap_sub(a, b));
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return ops::div(a, b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    return ops::rem(a, b);
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? ops::wrap_sub(T{0}, a) : a;
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return ops::wrap_sub(T{0}, a);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
// Packed halves and the .relu forms.
template <class F, class T>
struct Pair {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    const auto low = static_cast<std::uint16_t>(F{}(static_cast<T>(a), static_cast<T>(b)));
    const auto high = static_cast<std::uint16_t>(F{}(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return std::uint32_t{high} << 16 | low;
  }
};
template <class F>
struct Relu {
  template <class T>
  T operator()(T a, T b) const {
    const T result = F{}(a, b);
    return result < 0 ? T{0} : result;
  }
};

template <class T, class W>
Step mul_wide(Warp& w, const Instruction& in, Mask active) {
  return lift2<W, T, T>(w, in, active, [](T a, T b) { return static_cast<W>(ops::wide_product(a, b)); });
}
template <class T, class W>
struct MulWide {
  W operator()(T a, T b) const { return static_cast<W>(ops::wide_product(a, b)); }
};
template <class T, class W>
struct MadWide {
  W operator()(T a, T b, W c) const { return ops::wrap_add(static_cast<W>(ops::wide_product(a, b)), c); }
};
template <class T, class W>
Step mad_wide(Warp& w, const Instruction& in, Mask active) {
  return lift3<W, T, T, W>(w, in, active,
                           [](T a, T b, W c) { return ops::wrap_add(static_cast<W>(ops::wide_product(a, b)), c); });
}

struct Mul24Lo {
  template <class T>
  T operator()(T a, T b) const {
    const auto cut = [](T v) {
      return static_cast<std::int64_t>(std::is_signed_v<T>
                                           ? static_cast<std::int32_t>(static_cast<std::uint32_t>(v) << 8) >> 8
                                           : static_cast<std::int32_t>(static_cast<std::uint32_t>(v) & 0xFFFFFF));
    };
    return static_cast<T>(cut(a) * cut(b));
  }
};
struct Mul24Hi {
  template <class T>
  T operator()(T a, T b) const {
    const auto cut = [](T v) {
      return static_cast<std::int64_t>(std::is_signed_v<T>
                                           ? static_cast<std::int32_t>(static_cast<std::uint32_t>(v) << 8) >> 8
                                           : static_cast<std::int32_t>(static_cast<std::uint32_t>(v) & 0xFFFFFF));
    };
    return static_cast<T>((cut(a) * cut(b)) >> 16);
  }
};
template <class M>
struct Mad24 {
  template <class T>
  T operator()(T a, T b, T c) const {
    return ops::wrap_add(M{}(a, b), c);
  }
};

// flags: 1 reads CC.CF, 2 writes it, 4 subtracts.
template <class T>
Step add_with_carry(Warp& w, const Instruction& in, Mask active) {
  T sa[kLanes];
  T sb[kLanes];
  const T* a = source<T>(w, in.op[1], sa);
  const T* b = source<T>(w, in.op[2], sb);
  T result[kLanes];
  Mask carry = w.carry;
  for_lanes(active, [&](int lane) {
    const bool subtract = (in.flags & 4) != 0;
    const T y = subtract ? static_cast<T>(~b[lane]) : b[lane];
    // A subtraction is a + ~b + 1, and the flag that sum's carry: the complement of a borrow, as what ptxas makes of
    // addc behind sub.cc shows. The compiler's own division of 128 bits counts on it.
    const bool carry_in = (in.flags & 1) != 0 ? ((w.carry >> lane) & 1) != 0 : subtract;
    const math::Uint128 sum = static_cast<math::Uint128>(a[lane]) + y + (carry_in ? 1u : 0u);
    result[lane] = static_cast<T>(sum);
    const Mask bit = Mask{1} << lane;
    carry = (carry & ~bit) | ((sum >> (sizeof(T) * 8)) != 0 ? bit : 0);
  });
  if ((in.flags & 2) != 0) w.carry = carry;
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}

// flags: 1 reads CC.CF, 2 writes it, 8 the product's upper half.
template <class T>
Step mad_with_carry(Warp& w, const Instruction& in, Mask active) {
  using U = ops::Unsigned<T>;
  T sa[kLanes];
  T sb[kLanes];
  T sc[kLanes];
  const T* a = source<T>(w, in.op[1], sa);
  const T* b = source<T>(w, in.op[2], sb);
  const T* c = source<T>(w, in.op[3], sc);
  T result[kLanes];
  Mask carry = w.carry;
  for_lanes(active, [&](int lane) {
    const T product = (in.flags & 8) != 0 ? ops::mul_hi(a[lane], b[lane]) : ops::mul_lo(a[lane], b[lane]);
    const Mask bit = Mask{1} << lane;
    const math::Uint128 sum = static_cast<math::Uint128>(static_cast<U>(product)) + static_cast<U>(c[lane]) +
                              ((in.flags & 1) != 0 && (w.carry & bit) != 0 ? 1u : 0u);
    result[lane] = static_cast<T>(static_cast<U>(sum));
    carry = (carry & ~bit) | ((sum >> (sizeof(T) * 8)) != 0 ? bit : 0);
  });
  if ((in.flags & 2) != 0) w.carry = carry;
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}

using Word = std::uint32_t;

}  // namespace

Handler add_int(const Decoded& d) {
  if (d.type() == Type::u16x2 || d.type() == Type::s16x2) return binary<Pair<Add, std::uint16_t>, Word>;
  if (d.has("sat")) return binary<AddSat, std::int32_t>;
  return binary_signless<Add>(d);
}
Handler sub_int(const Decoded& d) {
  if (d.has("sat")) return binary<SubSat, std::int32_t>;
  return binary_signless<Sub>(d);
}
Handler mul_int(const Decoded& d) {
  if (d.has("wide")) {
    switch (d.type()) {
      case Type::u16:
        return wide::or_plain<MulWide<std::uint16_t, std::uint32_t>, std::uint32_t, std::uint16_t, std::uint16_t>(
            d, mul_wide<std::uint16_t, std::uint32_t>);
      case Type::s16:
        return wide::or_plain<MulWide<std::int16_t, std::int32_t>, std::int32_t, std::int16_t, std::int16_t>(
            d, mul_wide<std::int16_t, std::int32_t>);
      case Type::u32:
        return wide::or_plain<MulWide<std::uint32_t, std::uint64_t>, std::uint64_t, std::uint32_t, std::uint32_t>(
            d, mul_wide<std::uint32_t, std::uint64_t>);
      case Type::s32:
        return wide::or_plain<MulWide<std::int32_t, std::int64_t>, std::int64_t, std::int32_t, std::int32_t>(
            d, mul_wide<std::int32_t, std::int64_t>);
      default:
        return nullptr;
    }
  }
  if (d.has("hi")) {
    if (const Handler handler = wide_binary<MulHi>(d); handler != nullptr) return handler;
    TESSERA_PICK_INT(binary, MulHi)
  }
  return binary_signless<MulLo>(d);
}
Handler mad_int(const Decoded& d) {
  if (d.has("wide")) {
    switch (d.type()) {
      case Type::u16:
        return mad_wide<std::uint16_t, std::uint32_t>;
      case Type::s16:
        return mad_wide<std::int16_t, std::int32_t>;
      case Type::u32:
        return wide::or_plain<MadWide<std::uint32_t, std::uint64_t>, std::uint64_t, std::uint32_t, std::uint32_t,
                              std::uint64_t>(d, mad_wide<std::uint32_t, std::uint64_t>);
      case Type::s32:
        return wide::or_plain<MadWide<std::int32_t, std::int64_t>, std::int64_t, std::int32_t, std::int32_t,
                              std::int64_t>(d, mad_wide<std::int32_t, std::int64_t>);
      default:
        return nullptr;
    }
  }
  if (d.has("hi")) {
    TESSERA_PICK_INT(ternary, MadHi)
  }
  const int bits = bits_of(d.type());
  if (bits == 32) return wide::or_plain<MadLo, Word, Word, Word, Word>(d, ternary<MadLo, Word>);
  using Long = std::uint64_t;
  if (bits == 64) return wide::or_plain<MadLo, Long, Long, Long, Long>(d, ternary<MadLo, Long>);
  using Short = std::uint16_t;
  return wide::or_plain<MadLo, Short, Short, Short, Short>(d, ternary<MadLo, Short>);
}
Handler mul24(const Decoded& d) {
  if (d.has("hi")) return d.type() == Type::u32 ? binary<Mul24Hi, Word> : binary<Mul24Hi, std::int32_t>;
  return d.type() == Type::u32 ? binary<Mul24Lo, Word> : binary<Mul24Lo, std::int32_t>;
}
Handler mad24(const Decoded& d) {
  if (d.has("hi")) return d.type() == Type::u32 ? ternary<Mad24<Mul24Hi>, Word> : ternary<Mad24<Mul24Hi>, std::int32_t>;
  return d.type() == Type::u32 ? ternary<Mad24<Mul24Lo>, Word> : ternary<Mad24<Mul24Lo>, std::int32_t>;
}
Handler sad(const Decoded& d){TESSERA_PICK_INT(ternary, Sad)} Handler
    div_int(const Decoded& d){TESSERA_PICK_INT(binary, Div)} Handler
    rem(const Decoded& d){TESSERA_PICK_INT(binary, Rem)} Handler abs_int(const Decoded& d) {
  if (const Handler handler = wide_unary<Abs>(d); handler != nullptr) return handler;
  TESSERA_PICK_INT(unary, Abs)
}
Handler neg_int(const Decoded& d) {
  if (const Handler handler = wide_unary<Neg>(d); handler != nullptr) return handler;
  TESSERA_PICK_INT(unary, Neg)
}
Handler min_int(const Decoded& d) {
  if (d.type() == Type::u16x2) return binary<Pair<Min, std::uint16_t>, Word>;
  if (d.type() == Type::s16x2)
    return d.has("relu") ? binary<Pair<Relu<Min>, std::int16_t>, Word> : binary<Pair<Min, std::int16_t>, Word>;
  if (d.has("relu")) return binary<Relu<Min>, std::int32_t>;
  if (const Handler handler = wide_binary<Min>(d); handler != nullptr) return handler;
  TESSERA_PICK_INT(binary, Min)
}
Handler max_int(const Decoded& d) {
  if (d.type() == Type::u16x2) return binary<Pair<Max, std::uint16_t>, Word>;
  if (d.type() == Type::s16x2)
    return d.has("relu") ? binary<Pair<Relu<Max>, std::int16_t>, Word> : binary<Pair<Max, std::int16_t>, Word>;
  if (d.has("relu")) return binary<Relu<Max>, std::int32_t>;
  if (const Handler handler = wide_binary<Max>(d); handler != nullptr) return handler;
  TESSERA_PICK_INT(binary, Max)
}
Handler dp4a(const Decoded& d) {
  using S = std::int8_t;
  using U = std::uint8_t;
  const bool a = d.type(0) == Type::s32;
  const bool b = d.type(1) == Type::s32;
  const auto handler = [](auto sa, auto sb) -> Handler {
    return [](Warp& w, const Instruction& in, Mask active) {
      return lift3<Word, Word, Word, Word>(w, in, active, ops::dp4a<decltype(sa), decltype(sb)>);
    };
  };
  return a ? (b ? handler(S{}, S{}) : handler(S{}, U{})) : (b ? handler(U{}, S{}) : handler(U{}, U{}));
}
Handler vabsdiff(const Decoded& d) {
  const auto handler = [](auto part, auto accumulates) -> Handler {
    return [](Warp& w, const Instruction& in, Mask active) {
      return lift3<Word, Word, Word, Word>(w, in, active, ops::vabsdiff<decltype(part), decltype(accumulates)::value>);
    };
  };
  using Adds = std::true_type;
  using Replaces = std::false_type;
  if (d.form->mnemonic == "vabsdiff4")
    return d.has("add") ? handler(std::uint8_t{}, Adds{}) : handler(std::uint8_t{}, Replaces{});
  return d.has("add") ? handler(std::uint16_t{}, Adds{}) : handler(std::uint16_t{}, Replaces{});
}
Handler carry_add(const Decoded& d) {
  const std::string_view name = d.form->mnemonic;
  const bool with_carry = name == "addc" || name == "subc";
  d.in->flags = static_cast<std::uint16_t>((with_carry ? 1 : 0) | (d.has("cc") ? 2 : 0) | (name[0] == 's' ? 4 : 0));
  return bits_of(d.type()) == 32 ? add_with_carry<std::uint32_t> : add_with_carry<std::uint64_t>;
}
Handler carry_mad(const Decoded& d) {
  d.in->flags =
      static_cast<std::uint16_t>((d.form->mnemonic == "madc" ? 1 : 0) | (d.has("cc") ? 2 : 0) | (d.has("hi") ? 8 : 0));
  switch (d.type()) {
    case Type::u32:
      return mad_with_carry<std::uint32_t>;
    case Type::s32:
      return mad_with_carry<std::int32_t>;
    case Type::u64:
      return mad_with_carry<std::uint64_t>;
    case Type::s64:
      return mad_with_carry<std::int64_t>;
    default:
      return nullptr;
  }
}

}  // namespace tessera::emulator::bind
