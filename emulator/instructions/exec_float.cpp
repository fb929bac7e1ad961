// PTX ISA, "Floating Point Instructions" for f32 and f64. Rounding to nearest runs on the host's IEEE arithmetic, 32
// lanes at a time; directed rounding and the approximate functions are emulator/math's.
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/of_host.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/mufu.h"

namespace tessera::emulator::bind {
namespace {

using math::bits_of;
using math::float_of;
using math::Rounding;
using U32 = std::uint32_t;

Rounding rounding_of(const Decoded& d) {
  return d.has("rz")   ? Rounding::toward_zero
         : d.has("rm") ? Rounding::down
         : d.has("rp") ? Rounding::up
                       : Rounding::nearest_even;
}

// flags of an f32 instruction: bits 0-2 rounding, 8 ftz, 16 sat.
void set_flags(const Decoded& d) {
  d.in->flags = static_cast<std::uint16_t>(static_cast<unsigned>(rounding_of(d)) | (d.has("ftz") ? 8u : 0u) |
                                           (d.has("sat") ? 16u : 0u));
}
math::ArithmeticModifiers modifiers(const Instruction& in) {
  return {static_cast<Rounding>(in.flags & 7), (in.flags & 8) != 0, (in.flags & 16) != 0};
}

template <bool kFtz>
float flush(float a) {
  return kFtz ? float_of(math::flush_f32(bits_of(a))) : a;
}
inline float canonical(float a) { return a == a ? a : float_of(math::kCanonicalNanF32); }

struct Add {
  static constexpr char kSign = '+';
  static float near(float a, float b) { return a + b; }
  static float any(float a, float b, math::ArithmeticModifiers m) { return math::add(a, b, m); }
  static double near(double a, double b) { return a + b; }
  static double any(double a, double b, Rounding m) { return math::add(a, b, m); }
};
struct Sub {
  static constexpr char kSign = '-';
  static float near(float a, float b) { return a - b; }
  static float any(float a, float b, math::ArithmeticModifiers m) { return math::sub(a, b, m); }
  static double near(double a, double b) { return a - b; }
  static double any(double a, double b, Rounding m) { return math::sub(a, b, m); }
};
struct Mul {
  static constexpr char kSign = '*';
  static float near(float a, float b) { return a * b; }
  static float any(float a, float b, math::ArithmeticModifiers m) { return math::mul(a, b, m); }
  static double near(double a, double b) { return a * b; }
  static double any(double a, double b, Rounding m) { return math::mul(a, b, m); }
};
struct Div {
  static constexpr char kSign = '/';
  static float near(float a, float b) { return a / b; }
  static double near(double a, double b) { return a / b; }
  static float any(float a, float b, math::ArithmeticModifiers m) { return math::div(a, b, m); }
  static double any(double a, double b, Rounding m) { return math::div(a, b, m); }
};

// A product whose rounding reached the smallest normal number may have been
// tiny before: flushed then.
Step mul_nearest_ftz(Warp& w, const Instruction& in, Mask active) {
  alignas(64) float sa[kLanes];
  alignas(64) float sb[kLanes];
  alignas(64) float result[kLanes];
  const float* a = source<float>(w, in.op[1], sa);
  const float* b = source<float>(w, in.op[2], sb);
  U32 suspicious = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float product = flush<true>(a[lane]) * flush<true>(b[lane]);
    suspicious |= (bits_of(product) & 0x7FFFFFFF) == 0x00800000 ? 1u : 0u;
    result[lane] = canonical(flush<true>(product));
  }
  if (suspicious != 0) [[unlikely]] {
    for (int lane = 0; lane < kLanes; ++lane)
      result[lane] = math::mul(a[lane], b[lane], {Rounding::nearest_even, true, false});
  }
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}

template <class F, bool kFtz>
struct Nearest {
  float operator()(float a, float b) const { return canonical(flush<kFtz>(F::near(flush<kFtz>(a), flush<kFtz>(b)))); }
};
struct NearestFma {
  float operator()(float a, float b, float c) const { return canonical(__builtin_fmaf(a, b, c)); }
};
template <class F, bool kFtz>
Step nearest(Warp& w, const Instruction& in, Mask active) {
  return lift2<float, float, float>(w, in, active, Nearest<F, kFtz>{});
}
template <class F>
Step any_float(Warp& w, const Instruction& in, Mask active) {
  const math::ArithmeticModifiers m = modifiers(in);
  return lift2<float, float, float>(w, in, active, [m](float a, float b) { return F::any(a, b, m); });
}
template <class F>
Step any_double(Warp& w, const Instruction& in, Mask active) {
  const Rounding m = modifiers(in).rounding;
  return lift2<double, double, double>(w, in, active, [m](double a, double b) { return F::any(a, b, m); });
}
// Of all 32 lanes at once; which NaN comes out is the handler's for any lanes to say.
template <class F, Handler kAny>
Step nearest_double_plain(Warp& w, const Instruction& in, Mask active) {
  alignas(64) double sa[kLanes];
  alignas(64) double sb[kLanes];
  alignas(64) double result[kLanes];
  const double* const a = source<double>(w, in.op[1], sa);
  const double* const b = source<double>(w, in.op[2], sb);
  if (!near_doubles<F>(a, b, result)) [[unlikely]]
    return kAny(w, in, active);
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}
template <class F, Handler kAny>
Handler nearest_double(const Decoded& d) {
#if defined(__x86_64__)
  if (const Handler host = doubles_of_host<Vectors4<F::kSign>, 2, kAny>(d); host != nullptr) return host;
#endif
  static_cast<void>(d);
  return nearest_double_plain<F, kAny>;
}
template <class F>
Handler pick_arithmetic(const Decoded& d) {
  set_flags(d);
  if (d.type() == Type::f64) {
    if ((d.in->flags & ~8) != 0) return any_double<F>;
    return nearest_double<F, any_double<F>>(d);
  }
  if ((d.in->flags & ~8) != 0) return any_float<F>;
  if (d.in->flags != 8) return wide::or_plain<Nearest<F, false>, float, float, float>(d, nearest<F, false>);
  if constexpr (std::is_same_v<F, Mul>) return mul_nearest_ftz;
  return wide::or_plain<Nearest<F, true>, float, float, float>(d, nearest<F, true>);
}

// The host's fused multiply-add where it has one: without, std::fma is a call for every lane.
template <bool kFtz>
[[gnu::always_inline]] inline void fma_of_host(const float* a, const float* b, const float* c, float* d) {
  alignas(64) float result[kLanes];
  U32 suspicious = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto flushed = [](float x) {
      const U32 bits = std::bit_cast<U32>(x);
      return std::bit_cast<float>(kFtz && (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
    };
    const float sum = __builtin_fmaf(flushed(a[lane]), flushed(b[lane]), flushed(c[lane]));
    suspicious |= kFtz && (std::bit_cast<U32>(sum) & 0x7FFFFFFF) == 0x00800000 ? 1u : 0u;
    const float x = flushed(sum);
    result[lane] = x == x ? x : std::bit_cast<float>(math::kCanonicalNanF32);
  }
  // The smallest normal number may have been tiny before it was rounded.
  if (suspicious != 0) [[unlikely]] {
    for (int lane = 0; lane < kLanes; ++lane)
      result[lane] = math::fma(a[lane], b[lane], c[lane], {Rounding::nearest_even, true, false});
  }
  std::memcpy(d, result, sizeof(result));
}
#if defined(__x86_64__)
template <bool kFtz>
[[gnu::target("avx2,fma")]] void fma_lanes(const float* a, const float* b, const float* c, float* d) {
  fma_of_host<kFtz>(a, b, c, d);
}
const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
template <bool kFtz>
void fma_lanes(const float* a, const float* b, const float* c, float* d) {
  fma_of_host<kFtz>(a, b, c, d);
}
#if defined(__aarch64__)
constexpr bool has_fma = true;  // every one has fmadd
#else
constexpr bool has_fma = false;
#endif
#endif

template <bool kFtz>
Step fma_nearest(Warp& w, const Instruction& in, Mask active) {
  if (has_fma) {
    alignas(64) float result[kLanes];
    const bool is_whole = active == kAllLanes;
    fma_lanes<kFtz>(w.reg<float>(in.op[1].offset), w.reg<float>(in.op[2].offset), w.reg<float>(in.op[3].offset),
                    is_whole ? w.reg<float>(in.op[0].offset) : result);
    if (!is_whole) store_lanes(w, in.op[0], active, result);
    return Step::next;
  }
  return lift3<float, float, float, float>(w, in, active, [](float a, float b, float c) {
    if constexpr (kFtz) return math::fma(a, b, c, {Rounding::nearest_even, true, false});
    return canonical(std::fma(a, b, c));
  });
}
Step fma_any(Warp& w, const Instruction& in, Mask active) {
  const math::ArithmeticModifiers m = modifiers(in);
  return lift3<float, float, float, float>(w, in, active,
                                           [m](float a, float b, float c) { return math::fma(a, b, c, m); });
}
Step fma_double(Warp& w, const Instruction& in, Mask active) {
  const Rounding m = modifiers(in).rounding;
  return lift3<double, double, double, double>(w, in, active,
                                               [m](double a, double b, double c) { return math::fma(a, b, c, m); });
}

// neg and abs change the sign bit; with .ftz a subnormal becomes zero. A NaN
// becomes the canonical one in f32, and is made quiet with its sign untouched
// in f64 (H200).
template <class T, T kAnd, T kXor, bool kFtz>
struct Sign {
  static constexpr bool kIsF32 = sizeof(T) == 4;
  static constexpr T kInfinity = kIsF32 ? T{math::kInfinityF32} : static_cast<T>(0x7FF0000000000000);
  static constexpr T kMagnitude = static_cast<T>(~T{0}) >> 1;
  T operator()(T a) const {
    if constexpr (kFtz) a = math::flush_f32(a);
    const T nan = kIsF32 ? T{math::kCanonicalNanF32} : a | static_cast<T>(0x0008000000000000);
    return (a & kMagnitude) > kInfinity ? nan : (a & kAnd) ^ kXor;
  }
};
template <class T, T kAnd, T kXor, bool kFtz>
Step sign_plain(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, Sign<T, kAnd, kXor, kFtz>{});
}
template <class T, T kAnd, T kXor, bool kFtz>
Handler sign(const Decoded& d) {
  return wide::or_plain<Sign<T, kAnd, kXor, kFtz>, T, T>(d, sign_plain<T, kAnd, kXor, kFtz>);
}

// flags: 8 ftz, 1 NaN, 2 xorsign.abs, 4 max.
template <bool kMax, bool kFtz>
struct MinMax {
  float operator()(float x, float y) const {
    const float a = flush<kFtz>(x);
    const float b = flush<kFtz>(y);
    // -0 is below +0: where the values are equal the bit patterns decide.
    const U32 ab = bits_of(a);
    const U32 bb = bits_of(b);
    const float equal = float_of(kMax ? ab & bb : ab | bb);
    const float ordered = (kMax ? a > b : a < b) ? a : b;
    const float number = a == b ? equal : ordered;
    return canonical(a != a ? b : b != b ? a : number);
  }
};
template <bool kMax, bool kFtz>
Step minmax_plain(Warp& w, const Instruction& in, Mask active) {
  return lift2<float, float, float>(w, in, active, MinMax<kMax, kFtz>{});
}
template <bool kMax, bool kFtz>
Handler pick_minmax_plain(const Decoded& d) {
  return wide::or_plain<MinMax<kMax, kFtz>, float, float, float>(d, minmax_plain<kMax, kFtz>);
}
Step minmax_any(Warp& w, const Instruction& in, Mask active) {
  const math::MinMaxModifiers m{(in.flags & 8) != 0, (in.flags & 1) != 0, (in.flags & 2) != 0};
  const bool is_max = (in.flags & 4) != 0;
  const bool three = in.num_operands > 3 && in.op[3].kind != Operand::Kind::none;
  if (three) {
    // .abs here makes the sources magnitudes; .xorsign does not exist with three.
    const bool is_abs = m.xorsign_abs;
    const math::MinMaxModifiers plain{m.ftz, m.nan, false};
    return lift3<float, float, float, float>(w, in, active, [=](float x, float y, float z) {
      const auto source = [is_abs](float v) { return is_abs ? float_of(bits_of(v) & 0x7FFFFFFF) : v; };
      const float a = source(x);
      const float b = source(y);
      const float c = source(z);
      return is_max ? math::max(math::max(a, b, plain), c, plain) : math::min(math::min(a, b, plain), c, plain);
    });
  }
  return lift2<float, float, float>(
      w, in, active, [m, is_max](float a, float b) { return is_max ? math::max(a, b, m) : math::min(a, b, m); });
}
template <bool kMax>
Step minmax_any_double(Warp& w, const Instruction& in, Mask active) {
  return lift2<double, double, double>(w, in, active,
                                       [](double a, double b) { return kMax ? math::max(a, b) : math::min(a, b); });
}
template <bool kMax>
constexpr Handler minmax_double = nearest_double_plain<NearMinMax<kMax>, minmax_any_double<kMax>>;
Handler pick_minmax(const Decoded& d, bool is_max) {
  if (d.type() == Type::f64) return is_max ? minmax_double<true> : minmax_double<false>;
  d.in->flags = static_cast<std::uint16_t>((d.has("ftz") ? 8 : 0) | (d.has("NaN") ? 1 : 0) | (d.has("abs") ? 2 : 0) |
                                           (is_max ? 4 : 0));
  const bool three = d.in->num_operands > 3 && d.in->op[3].kind != Operand::Kind::none;
  if (three && target_number(d.target) < 100) return nullptr;
  if ((d.in->flags & 3) != 0 || three) return minmax_any;
  if (is_max) return d.has("ftz") ? pick_minmax_plain<true, true>(d) : pick_minmax_plain<true, false>(d);
  return d.has("ftz") ? pick_minmax_plain<false, true>(d) : pick_minmax_plain<false, false>(d);
}

template <std::uint32_t (*kFunction)(std::uint32_t)>
Step special(Warp& w, const Instruction& in, Mask active) {
  return lift1<U32, U32>(w, in, active, [](U32 a) { return kFunction(a); });
}
template <std::uint64_t (*kFunction)(std::uint64_t)>
Step special_wide(Warp& w, const Instruction& in, Mask active) {
  return lift1<std::uint64_t, std::uint64_t>(w, in, active, [](std::uint64_t a) { return kFunction(a); });
}
template <std::uint32_t (*kFunction)(std::uint32_t, bool), bool kFtz>
Step special_ftz(Warp& w, const Instruction& in, Mask active) {
  return lift1<U32, U32>(w, in, active, [](U32 a) { return kFunction(a, kFtz); });
}
template <std::uint32_t (*kFunction)(std::uint32_t, std::uint32_t, bool), bool kFtz>
Step divide_special(Warp& w, const Instruction& in, Mask active) {
  return lift2<U32, U32, U32>(w, in, active, [](U32 a, U32 b) { return kFunction(a, b, kFtz); });
}

// All lanes in one call.
using Form = math::SpecialForm;
template <Form kForm>
Step unit(Warp& w, const Instruction& in, Mask active) {
  alignas(64) U32 scratch[kLanes], result[kLanes];
  const bool is_whole = active == kAllLanes && in.op[0].bytes == sizeof(U32);
  U32* const to = is_whole ? w.reg<U32>(in.op[0].offset) : result;
  math::special_lanes(kForm, source<U32>(w, in.op[1], scratch), to, active);
  if (!is_whole) store_lanes(w, in.op[0], active, result);
  return Step::next;
}

struct NearestRcp {
  float operator()(float a) const { return canonical(1.0f / a); }
};
Step rcp_any(Warp& w, const Instruction& in, Mask active) {
  const math::ArithmeticModifiers m = modifiers(in);
  return lift1<float, float>(w, in, active, [m](float a) { return math::rcp(a, m); });
}
Step rcp_double(Warp& w, const Instruction& in, Mask active) {
  const Rounding m = modifiers(in).rounding;
  return lift1<double, double>(w, in, active, [m](double a) { return math::rcp(a, m); });
}
Step sqrt_any(Warp& w, const Instruction& in, Mask active) {
  const math::ArithmeticModifiers m = modifiers(in);
  return lift1<float, float>(w, in, active, [m](float a) { return math::sqrt(a, m); });
}
Step sqrt_double(Warp& w, const Instruction& in, Mask active) {
  const Rounding m = modifiers(in).rounding;
  return lift1<double, double>(w, in, active, [m](double a) { return math::sqrt(a, m); });
}

#if defined(__x86_64__)
Step sqrt_nearest(Warp& w, const Instruction& in, Mask active) {
  alignas(64) float result[kLanes];
  sqrt_floats(w.reg<float>(in.op[1].offset), result);
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}
Step sqrt_nearest_double(Warp& w, const Instruction& in, Mask active) {
  alignas(64) double result[kLanes];
  if (!sqrt_doubles(w.reg<double>(in.op[1].offset), result)) return sqrt_double(w, in, active);
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}
/// sqrt.rn by the host's vectors; null: not here.
Handler sqrt_of_host(const Decoded& d) {
  const bool is_double = d.type() == Type::f64;
  if (wide::here == wide::Vectors::none || d.in->flags != 0) return nullptr;
  for (int i = 0; i < 2; ++i)
    if (d.in->op[i].kind != Operand::Kind::reg || d.in->op[i].bytes != (is_double ? 8 : 4)) return nullptr;
  return is_double ? sqrt_nearest_double : sqrt_nearest;
}
#else
Handler sqrt_of_host(const Decoded&) { return nullptr; }
#endif

template <class T>
Step copy_sign(Warp& w, const Instruction& in, Mask active) {
  constexpr T kSign = T{1} << (sizeof(T) * 8 - 1);
  return lift2<T, T, T>(w, in, active, [](T a, T b) { return (b & ~kSign) | (a & kSign); });
}

bool test_property(double value, bool is_subnormal, std::uint16_t property) {
  switch (property) {
    case 0:
      return std::isfinite(value);
    case 1:
      return std::isinf(value);
    case 2:
      return !std::isnan(value);
    case 3:
      return std::isnan(value);
    case 4:
      return std::isfinite(value) && !is_subnormal;  // zero too (H200)
    default:
      return is_subnormal;
  }
}
template <class T>
Step test(Warp& w, const Instruction& in, Mask active) {
  T sa[kLanes];
  const T* a = source<T>(w, in.op[1], sa);
  Mask result = 0;
  for_lanes(active, [&](int lane) {
    if (test_property(static_cast<double>(a[lane]), std::fpclassify(a[lane]) == FP_SUBNORMAL, in.flags))
      result |= Mask{1} << lane;
  });
  write_predicate(w, in.op[0], active, result);
  return Step::next;
}

}  // namespace

Handler add_float(const Decoded& d) { return pick_arithmetic<Add>(d); }
Handler sub_float(const Decoded& d) { return pick_arithmetic<Sub>(d); }
Handler mul_float(const Decoded& d) { return pick_arithmetic<Mul>(d); }
Handler fma(const Decoded& d) {
  set_flags(d);
#if defined(__x86_64__)
  if (d.type() == Type::f64 && (d.in->flags & ~8) == 0)
    if (const Handler host = doubles_of_host<Fma4, 3, fma_double>(d); host != nullptr) return host;
#endif
  if (d.type() == Type::f64) return fma_double;
  if ((d.in->flags & ~8) != 0) return fma_any;
  if (d.in->flags == 8) return fma_nearest<true>;
  return wide::or_plain<NearestFma, float, float, float, float>(d, fma_nearest<false>);
}
Handler div_float(const Decoded& d) {
  set_flags(d);
  const bool ftz = d.has("ftz");
  if (d.has("approx")) return ftz ? divide_special<math::div_approx, true> : divide_special<math::div_approx, false>;
  if (d.has("full")) return ftz ? divide_special<math::div_full, true> : divide_special<math::div_full, false>;
  if (d.in->flags == 0 && d.type() == Type::f64) return nearest_double<Div, any_double<Div>>(d);
  if (d.in->flags == 0) return wide::or_plain<Nearest<Div, false>, float, float, float>(d, any_float<Div>);
  return d.type() == Type::f64 ? any_double<Div> : any_float<Div>;
}
Handler neg_float(const Decoded& d) {
  if (d.type() == Type::f64) return sign<std::uint64_t, ~std::uint64_t{0}, std::uint64_t{1} << 63, false>(d);
  return d.has("ftz") ? sign<U32, 0xFFFFFFFF, 0x80000000, true>(d) : sign<U32, 0xFFFFFFFF, 0x80000000, false>(d);
}
Handler abs_float(const Decoded& d) {
  if (d.type() == Type::f64) return sign<std::uint64_t, ~(std::uint64_t{1} << 63), 0, false>(d);
  return d.has("ftz") ? sign<U32, 0x7FFFFFFF, 0, true>(d) : sign<U32, 0x7FFFFFFF, 0, false>(d);
}
Handler min_float(const Decoded& d) { return pick_minmax(d, false); }
Handler max_float(const Decoded& d) { return pick_minmax(d, true); }
Handler rcp(const Decoded& d) {
  set_flags(d);
  if (d.has("approx")) {
    if (d.type() == Type::f64) return special_wide<math::rcp_f64>;
    return d.has("ftz") ? unit<Form::rcp_ftz> : unit<Form::rcp_full>;
  }
  if (d.type() == Type::f64) return rcp_double;
  return d.in->flags == 0 ? wide::or_plain<NearestRcp, float, float>(d, rcp_any) : rcp_any;
}
Handler sqrt(const Decoded& d) {
  set_flags(d);
  if (d.has("approx")) return d.has("ftz") ? unit<Form::sqrt_ftz> : unit<Form::sqrt_full>;
  if (const Handler host = sqrt_of_host(d); host != nullptr) return host;
  return d.type() == Type::f64 ? sqrt_double : sqrt_any;
}
Handler approx(const Decoded& d) {
  const std::string_view name = d.form->mnemonic;
  const bool ftz = d.has("ftz");
  if (name == "ex2") return ftz ? unit<Form::ex2_ftz> : unit<Form::ex2_full>;
  if (name == "lg2") return ftz ? unit<Form::lg2_ftz> : unit<Form::lg2_full>;
  if (name == "rsqrt" && d.type() == Type::f64)
    return ftz ? special_wide<math::rsqrt_f64> : special_wide<math::rsqrt_f64_full>;
  if (name == "rsqrt") return ftz ? unit<Form::rsqrt_ftz> : unit<Form::rsqrt_full>;
  if (name == "sin") return ftz ? special_ftz<math::sin_approx, true> : special_ftz<math::sin_approx, false>;
  if (name == "cos") return ftz ? special_ftz<math::cos_approx, true> : special_ftz<math::cos_approx, false>;
  return name == "tanh" ? special<math::tanh_f32> : nullptr;
}
Handler copysign(const Decoded& d) { return d.type() == Type::f64 ? copy_sign<std::uint64_t> : copy_sign<U32>; }
Handler testp(const Decoded& d) {
  constexpr std::string_view kProperties[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  for (std::uint16_t i = 0; i < 6; ++i)
    if (d.has(kProperties[i])) d.in->flags = i;
  return d.type() == Type::f64 ? test<double> : test<float>;
}

}  // namespace tessera::emulator::bind
