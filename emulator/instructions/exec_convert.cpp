// PTX ISA, "Data Movement and Conversion Instructions: cvt".
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "emulator/instructions/bind.h"
#include "emulator/instructions/integral.h"
#include "emulator/instructions/wide.h"
#include "emulator/math/convert.h"
#include "emulator/math/integer_convert.h"

namespace tessera::emulator::bind {
namespace {

using math::Format;
using math::Rounding;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

// flags: bits 0-2 rounding, 8 ftz, 16 sat, 32 satfinite, 64 relu, 128 to an integral value.
math::CvtModifiers modifiers(const Instruction& in) {
  return {static_cast<Rounding>(in.flags & 7), (in.flags & 8) != 0, (in.flags & 16) != 0, (in.flags & 32) != 0,
          (in.flags & 64) != 0};
}

bool set_flags(const Decoded& d) {
  constexpr std::pair<std::string_view, Rounding> kModes[] = {
      {"rn", Rounding::nearest_even}, {"rz", Rounding::toward_zero},   {"rm", Rounding::down},
      {"rp", Rounding::up},           {"rna", Rounding::nearest_away}, {"rni", Rounding::nearest_even},
      {"rzi", Rounding::toward_zero}, {"rmi", Rounding::down},         {"rpi", Rounding::up}};
  unsigned flags = 0;
  bool rounds = false;
  for (const auto& [name, mode] : kModes) {
    if (!d.has(name)) continue;
    rounds = true;
    flags |= static_cast<unsigned>(mode) | (name.size() == 3 && name[2] == 'i' ? 128u : 0u);
  }
  flags |= (d.has("ftz") ? 8u : 0u) | (d.has("sat") ? 16u : 0u) | (d.has("satfinite") ? 32u : 0u) |
           (d.has("relu") ? 64u : 0u);
  d.in->flags = static_cast<U16>(flags);
  return rounds;
}

bool find_format(Type type, Format& format) {
  switch (type) {
    case Type::f64:
      format = Format::f64;
      return true;
    case Type::f32:
      format = Format::f32;
      return true;
    case Type::tf32:
      format = Format::tf32;
      return true;
    case Type::f16:
    case Type::f16x2:
      format = Format::f16;
      return true;
    case Type::bf16:
    case Type::bf16x2:
      format = Format::bf16;
      return true;
    case Type::e5m2x2:
      format = Format::e5m2;
      return true;
    case Type::e4m3x2:
      format = Format::e4m3;
      return true;
    case Type::e2m1x2:
      format = Format::e2m1;
      return true;
    case Type::e2m3x2:
      format = Format::e2m3;
      return true;
    case Type::e3m2x2:
      format = Format::e3m2;
      return true;
    case Type::ue8m0x2:
      format = Format::ue8m0;
      return true;
    default:
      return false;
  }
}

// Calls f.template operator()<T>() with the C++ type of an integer type.
template <class F>
Handler with_integer(Type type, F f) {
  switch (type) {
    case Type::u8:
      return f.template operator()<std::uint8_t>();
    case Type::s8:
      return f.template operator()<std::int8_t>();
    case Type::u16:
      return f.template operator()<std::uint16_t>();
    case Type::s16:
      return f.template operator()<std::int16_t>();
    case Type::u32:
      return f.template operator()<std::uint32_t>();
    case Type::s32:
      return f.template operator()<std::int32_t>();
    case Type::u64:
      return f.template operator()<std::uint64_t>();
    case Type::s64:
      return f.template operator()<std::int64_t>();
    default:
      return nullptr;
  }
}
bool is_integer(Type type) { return type >= Type::u8 && type <= Type::s64; }

template <class To>
struct Cut {
  template <class From>
  To operator()(From a) const {
    return static_cast<To>(a);
  }
};
template <class D>
void store_cut(const Warp& w, const Operand& to, Mask active, const U64* values) {
  D* const d = w.reg<D>(to.offset);
  for_lanes(active, [=](int lane) { d[lane] = static_cast<D>(values[lane]); });
}
// The form for every destination; its register may be wider. number: the destination's bits, and kSigned.
constexpr U32 kSigned = 256;
template <class From, bool kSat>
Step int_to_int(Warp& w, const Instruction& in, Mask active) {
  alignas(64) From scratch[kLanes];
  const From* const a = source<From>(w, in.op[1], scratch);
  const math::IntegerType type{in.number & (kSigned - 1), (in.number & kSigned) != 0};
  alignas(64) U64 result[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = math::integer_to_integer<kSat>(a[lane], type);
  const Operand& to = in.op[0];
  switch (to.bytes) {
    case 2:
      store_cut<U16>(w, to, active, result);
      break;
    case 4:
      store_cut<U32>(w, to, active, result);
      break;
    case 8:
      store_cut<U64>(w, to, active, result);
      break;
    default:
      for_lanes(active, [&](int lane) { write_lane<U64>(w, to, lane, result[lane]); });
  }
  return Step::next;
}
/// For this host, where the registers are as wide as their types: then no sign matters but that of a source that grows.
template <class From>
Handler cut_to(const Decoded& d, int bits, Handler plain) {
  using Unsigned = std::make_unsigned_t<From>;
  switch (bits) {
    case 16:
      return wide::or_plain<Cut<U16>, U16, Unsigned>(d, plain);
    case 32:
      return wide::or_plain<Cut<U32>, U32, std::conditional_t<(sizeof(From) < 4), From, Unsigned>>(d, plain);
    case 64:
      return wide::or_plain<Cut<U64>, U64, std::conditional_t<(sizeof(From) < 8), From, Unsigned>>(d, plain);
    default:
      return plain;
  }
}

template <class From>
Step int_to_f32_near(Warp& w, const Instruction& in, Mask active) {
  return lift1<float, From>(w, in, active, [](From a) { return static_cast<float>(a); });
}
/// The host rounds to nearest, too.
template <class From>
Step int_to_f64_near(Warp& w, const Instruction& in, Mask active) {
  return lift1<double, From>(w, in, active, [](From a) { return static_cast<double>(a); });
}
// What takes more than an instruction or two is a function: in lift1 it would be compiled three times.
template <Format F, class Code, class From>
[[gnu::noinline]] Code float_of(From a, Rounding mode) {
  return static_cast<Code>(math::integer_to_float<F>(a, mode));
}
template <Format F, class Code, class From>
Step int_to_float(Warp& w, const Instruction& in, Mask active) {
  const auto mode = static_cast<Rounding>(in.flags & 7);
  return lift1<Code, From>(w, in, active, [mode](From a) { return float_of<F, Code, From>(a, mode); });
}
struct IntToFloat {
  Type to;
  bool is_near;
  const Decoded& d;
  template <class From>
  Handler operator()() const {
    if (to == Type::f32) {
      if (!is_near) return int_to_float<Format::f32, U32, From>;
      if constexpr (sizeof(From) == 4) return wide::or_plain<Cut<float>, float, From>(d, int_to_f32_near<From>);
      return int_to_f32_near<From>;
    }
    if (to == Type::f64) {
      if (!is_near) return int_to_float<Format::f64, U64, From>;
      if constexpr (sizeof(From) == 4) return wide::or_plain<Cut<double>, double, From>(d, int_to_f64_near<From>);
      return int_to_f64_near<From>;
    }
    return to == Type::f16 ? int_to_float<Format::f16, U16, From> : int_to_float<Format::bf16, U16, From>;
  }
};

template <Format F, class Code, class To>
[[gnu::noinline]] To integer_of(Code a, Rounding mode, bool ftz) {
  if constexpr (F == Format::f32)
    if (ftz) a = math::flush_f32(a);
  return math::float_to_integer<To>(math::decode<F>(a), mode, F == Format::f64);
}
template <Format F, class Code, class To>
Step float_to_int(Warp& w, const Instruction& in, Mask active) {
  const auto mode = static_cast<Rounding>(in.flags & 7);
  const bool ftz = (in.flags & 8) != 0;
  return lift1<To, Code>(w, in, active, [=](Code a) { return integer_of<F, Code, To>(a, mode, ftz); });
}
/// F's form for the rounding of an instruction without ftz and sat; null: there is none.
template <template <Rounding> class F, class To>
Handler by_mode(const Decoded& d, Handler plain) {
  switch (d.in->flags) {
    case 128 | static_cast<unsigned>(Rounding::nearest_even):
      return wide::or_plain<F<Rounding::nearest_even>, To, U32>(d, plain);
    case 128 | static_cast<unsigned>(Rounding::toward_zero):
      return wide::or_plain<F<Rounding::toward_zero>, To, U32>(d, plain);
    case 128 | static_cast<unsigned>(Rounding::down):
      return wide::or_plain<F<Rounding::down>, To, U32>(d, plain);
    case 128 | static_cast<unsigned>(Rounding::up):
      return wide::or_plain<F<Rounding::up>, To, U32>(d, plain);
    default:
      return plain;
  }
}
template <Rounding kMode>
using IntegralToS32 = IntegralTo<std::int32_t, kMode>;
template <Rounding kMode>
using IntegralToU32 = IntegralTo<U32, kMode>;

struct FloatToInt {
  Type from;
  const Decoded& d;
  template <class To>
  Handler operator()() const {
    if constexpr (sizeof(To) == 4) {
      constexpr unsigned kPlain = 128 | static_cast<unsigned>(Rounding::toward_zero);
      if (from == Type::f32 && d.in->flags == kPlain)
        return wide::or_plain<TowardZero<To>, To, float>(d, float_to_int<Format::f32, U32, To>);
      if constexpr (std::is_signed_v<To>)
        if (from == Type::f32) return by_mode<IntegralToS32, To>(d, float_to_int<Format::f32, U32, To>);
      if constexpr (std::is_unsigned_v<To>)
        if (from == Type::f32) return by_mode<IntegralToU32, To>(d, float_to_int<Format::f32, U32, To>);
    }
    if (from == Type::f32) return float_to_int<Format::f32, U32, To>;
    if (from == Type::f64) return float_to_int<Format::f64, U64, To>;
    return from == Type::f16 ? float_to_int<Format::f16, U16, To> : float_to_int<Format::bf16, U16, To>;
  }
};

// number: destination format << 8 | source format.
template <class To, class From>
Step float_to_float(Warp& w, const Instruction& in, Mask active) {
  const auto function = math::find_convert(static_cast<Format>(in.number >> 8), static_cast<Format>(in.number & 255));
  const math::CvtModifiers m = modifiers(in);
  return lift1<To, From>(w, in, active, [=](From a) { return static_cast<To>(function(a, m)); });
}
U32 bf16_near(U32 f32) {
  const U32 rounded = (f32 + 0x7FFF + ((f32 >> 16) & 1)) >> 16;
  return (f32 & 0x7FFFFFFF) > math::kInfinityF32 ? math::kCanonicalNan16 : rounded;
}
/// Between floats without modifiers, by the host's conversions, which round to nearest and keep a NaN's payload.
struct Bf16ToFloat {
  U32 operator()(U16 a) const { return static_cast<U32>(a) << 16; }
};
struct FloatToBf16 {
  U16 operator()(U32 a) const { return static_cast<U16>(bf16_near(a)); }
};
#if defined(__x86_64__)
#define TESSERA_FOR_F16C [[gnu::target("avx2,f16c")]]
TESSERA_FOR_F16C void halves_to_floats(const U16* from, float* to) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(math::kCanonicalNanF32)));
  for (int lane = 0; lane < kLanes; lane += 8) {
    const __m256 value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + lane)));
    _mm256_storeu_ps(to + lane, _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
  }
}
TESSERA_FOR_F16C void floats_to_halves(const float* from, U16* to) {
  for (int lane = 0; lane < kLanes; lane += 8) {
    const __m256 value = _mm256_loadu_ps(from + lane);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m128i code = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    const __m128i nans = _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
    const __m128i nan = _mm_set1_epi16(static_cast<short>(math::kCanonicalNan16));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + lane), _mm_blendv_epi8(code, nan, nans));
  }
}
Step half_to_float(Warp& w, const Instruction& in, Mask active) {
  alignas(64) float result[kLanes];
  halves_to_floats(w.reg<U16>(in.op[1].offset), result);
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}
Step float_to_half(Warp& w, const Instruction& in, Mask active) {
  alignas(64) U16 result[kLanes];
  floats_to_halves(w.reg<float>(in.op[1].offset), result);
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}
const bool has_f16c = __builtin_cpu_supports("f16c");
#endif
/// Null: not here.
Handler by_host(const Decoded& d, Type to, Type from, Handler plain) {
  if (d.in->flags != 0) return nullptr;
  if (to == Type::f64 && from == Type::f32) return wide::or_plain<Cut<double>, double, float>(d, plain);
  if (to == Type::f32 && from == Type::f64) return wide::or_plain<Cut<float>, float, double>(d, plain);
  if (to == Type::f32 && from == Type::bf16) return wide::or_plain<Bf16ToFloat, U32, U16>(d, plain);
  if (to == Type::bf16 && from == Type::f32) return wide::or_plain<FloatToBf16, U16, U32>(d, plain);
#if defined(__x86_64__)
  const Operand* const op = d.in->op;
  if (wide::here == wide::Vectors::none || !has_f16c) return nullptr;
  if (to == Type::f32 && from == Type::f16 && op[0].bytes == 4 && op[1].bytes == 2) return half_to_float;
  if (to == Type::f16 && from == Type::f32 && op[0].bytes == 2 && op[1].bytes == 4) return float_to_half;
#endif
  return nullptr;
}
template <class To>
Handler pick_source(int bits) {
  return bits == 16 ? float_to_float<To, U16> : bits == 32 ? float_to_float<To, U32> : float_to_float<To, U64>;
}

template <Format F, class Code>
[[gnu::noinline]] Code integral_of(Code a, math::CvtModifiers m) {
  if constexpr (F == Format::f32)
    if (m.ftz) a = math::flush_f32(a);
  if constexpr (F == Format::f64)
    if (math::double_of(a) != math::double_of(a)) return a | (U64{1} << 51);
  double value = math::round_to_integral(math::decode<F>(a), m.rounding);
  if (m.sat) value = value > 0 ? (value > 1 ? 1.0 : value) : 0.0;
  return static_cast<Code>(math::encode<F>(value, Rounding::nearest_even, false));
}
template <Format F, class Code>
Step round_to_integral(Warp& w, const Instruction& in, Mask active) {
  const math::CvtModifiers m = modifiers(in);
  return lift1<Code, Code>(w, in, active, [=](Code a) { return integral_of<F, Code>(a, m); });
}

Step bf16x2_near(Warp& w, const Instruction& in, Mask active) {
  return lift2<U32, U32, U32>(w, in, active, [](U32 a, U32 b) { return bf16_near(a) << 16 | bf16_near(b); });
}

template <Format F, class To>
[[gnu::noinline]] To pair_of(float a, float b, math::CvtModifiers m) {
  return static_cast<To>(math::convert_pair<F>(a, b, m));
}
template <Format F, class To>
Step pair_from_f32(Warp& w, const Instruction& in, Mask active) {
  const math::CvtModifiers m = modifiers(in);
  return lift2<To, float, float>(w, in, active, [m](float a, float b) { return pair_of<F, To>(a, b, m); });
}
template <Format To, class ToCode, Format From, class FromCode>
[[gnu::noinline]] ToCode pair_of_pair(FromCode a, math::CvtModifiers m) {
  return static_cast<ToCode>(math::convert_packed<To, From>(a, m));
}
template <Format To, class ToCode, Format From, class FromCode>
Step pair_from_pair(Warp& w, const Instruction& in, Mask active) {
  const math::CvtModifiers m = modifiers(in);
  return lift1<ToCode, FromCode>(w, in, active, [m](FromCode a) { return pair_of_pair<To, ToCode, From>(a, m); });
}

template <Format From>
Handler from_halves(Type to) {
  switch (to) {
    case Type::e4m3x2:
      return pair_from_pair<Format::e4m3, U16, From, U32>;
    case Type::e5m2x2:
      return pair_from_pair<Format::e5m2, U16, From, U32>;
    case Type::e2m1x2:
      return pair_from_pair<Format::e2m1, std::uint8_t, From, U32>;
    case Type::e2m3x2:
      return pair_from_pair<Format::e2m3, U16, From, U32>;
    case Type::e3m2x2:
      return pair_from_pair<Format::e3m2, U16, From, U32>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler cvt(const Decoded& d) {
  const Type to = d.type(0);
  const Type from = d.type(1);
  const bool rounds = set_flags(d);
  if (is_integer(to) && is_integer(from)) {
    d.in->number = static_cast<U32>(bits_of(to)) | (to >= Type::s8 && to <= Type::s64 ? kSigned : 0);
    return with_integer(from, [&]<class From>() -> Handler {
      if (d.has("sat")) return int_to_int<From, true>;
      if constexpr (sizeof(From) == 1)
        return int_to_int<From, false>;
      else
        return cut_to<From>(d, bits_of(to), int_to_int<From, false>);
    });
  }
  // No bf16 is made of bytes; ptxas makes bytes of it where the destination is a .b8 register.
  if (bits_of(from) == 8 && to == Type::bf16) return nullptr;
  if (is_integer(from)) return with_integer(from, IntToFloat{to, (d.in->flags & 7) == 0, d});
  if (is_integer(to)) return with_integer(to, FloatToInt{from, d});
  Format d_format{};
  Format s_format{};
  if (!find_format(to, d_format) || !find_format(from, s_format)) return nullptr;
  if ((d.in->flags & 128) != 0) {
    if (to != from) return nullptr;
    return to == Type::f32   ? by_mode<Integral, U32>(d, round_to_integral<Format::f32, U32>)
           : to == Type::f64 ? round_to_integral<Format::f64, U64>
           : to == Type::f16 ? round_to_integral<Format::f16, U16>
                             : round_to_integral<Format::bf16, U16>;
  }
  // A conversion that cannot hold every value must say how it rounds; between f16 and bf16 ptxas takes none for .rn.
  const bool are_halves = bits_of(to) == 16 && bits_of(from) == 16 && to != from;
  const bool exact = to == from || to == Type::f64 || (to == Type::f32 && from != Type::f64);
  if (exact == rounds && !are_halves) return nullptr;
  d.in->number = static_cast<U32>(d_format) << 8 | static_cast<U32>(s_format);
  const int bits = bits_of(from);
  const Handler plain = bits_of(to) == 16   ? pick_source<U16>(bits)
                        : bits_of(to) == 32 ? pick_source<U32>(bits)
                                            : pick_source<U64>(bits);
  const Handler host = by_host(d, to, from, plain);
  return host != nullptr ? host : plain;
}

Handler cvt_packed(const Decoded& d) {
  set_flags(d);
  const Type to = d.type(0);
  const Type from = d.type(1);
  if (from == Type::f32) {
    switch (to) {
      case Type::bf16x2:
        return d.in->flags == 0 ? bf16x2_near : pair_from_f32<Format::bf16, U32>;
      case Type::f16x2:
        return pair_from_f32<Format::f16, U32>;
      case Type::e4m3x2:
        return pair_from_f32<Format::e4m3, U16>;
      case Type::e5m2x2:
        return pair_from_f32<Format::e5m2, U16>;
      case Type::e2m1x2:
        return pair_from_f32<Format::e2m1, std::uint8_t>;
      case Type::e2m3x2:
        return pair_from_f32<Format::e2m3, U16>;
      case Type::e3m2x2:
        return pair_from_f32<Format::e3m2, U16>;
      case Type::ue8m0x2:
        return pair_from_f32<Format::ue8m0, U16>;
      default:
        return nullptr;
    }
  }
  if (to == Type::f16x2) {
    switch (from) {
      case Type::e4m3x2:
        return pair_from_pair<Format::f16, U32, Format::e4m3, U16>;
      case Type::e5m2x2:
        return pair_from_pair<Format::f16, U32, Format::e5m2, U16>;
      case Type::e2m1x2:
        return pair_from_pair<Format::f16, U32, Format::e2m1, std::uint8_t>;
      case Type::e2m3x2:
        return pair_from_pair<Format::f16, U32, Format::e2m3, U16>;
      case Type::e3m2x2:
        return pair_from_pair<Format::f16, U32, Format::e3m2, U16>;
      default:
        return nullptr;
    }
  }
  if (to == Type::bf16x2 && from == Type::ue8m0x2) return pair_from_pair<Format::bf16, U32, Format::ue8m0, U16>;
  if (to == Type::ue8m0x2 && from == Type::bf16x2) return pair_from_pair<Format::ue8m0, U16, Format::bf16, U32>;
  return from == Type::f16x2 ? from_halves<Format::f16>(to) : from_halves<Format::bf16>(to);
}

}  // namespace tessera::emulator::bind
