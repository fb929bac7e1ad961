#include "emulator/math/half_arithmetic.h"

#include <cmath>

namespace tessera::emulator::math {
namespace {

template <Format F>
std::uint32_t flush_half(std::uint32_t code) {
  constexpr FormatInfo kInfo = info_of(F);
  constexpr std::uint32_t kField = ((1u << kInfo.exponent_bits) - 1) << kInfo.fraction_bits;
  return (code & kField) == 0 ? code & 0x8000 : code & 0xFFFF;
}

template <Format F>
double operand(std::uint32_t code, bool ftz) {
  return decode<F>(ftz ? flush_half<F>(code) : code);
}

template <Format F>
std::uint32_t result(double value, HalfModifiers m) {
  if (value != value) return m.sat ? 0 : kCanonicalNan16;
  // .ftz (f16 only) flushes what is tiny after rounding to 11 bits without a bound of the exponent (H200).
  if (m.ftz && std::fabs(value) < 0x1p-14 - 0x1p-26) value = std::copysign(0.0, value);
  if (m.relu && std::signbit(value)) return 0;
  if (m.sat) value = !(value > 0.0) ? 0.0 : value > 1.0 ? 1.0 : value;
  const auto code = static_cast<std::uint32_t>(encode<F>(value, Rounding::nearest_even));
  return m.ftz ? flush_half<F>(code) : code;
}

template <Format F>
std::uint32_t pick_half(std::uint32_t a, std::uint32_t b, MinMaxModifiers m, bool larger) {
  // Through f32, which holds both exactly; a NaN operand stays one, the result is never rounded.
  const auto widen = [&m](std::uint32_t code) { return static_cast<float>(operand<F>(code, m.ftz)); };
  const MinMaxModifiers inner{false, m.nan, m.xorsign_abs};
  const float winner = larger ? max(widen(a), widen(b), inner) : min(widen(a), widen(b), inner);
  return static_cast<std::uint32_t>(encode<F>(static_cast<double>(winner), Rounding::nearest_even));
}

}  // namespace

template <Format F>
std::uint32_t half_add(std::uint32_t a, std::uint32_t b, HalfModifiers m) {
  return result<F>(sum_to_odd(operand<F>(a, m.ftz), operand<F>(b, m.ftz)), m);
}
template <Format F>
std::uint32_t half_sub(std::uint32_t a, std::uint32_t b, HalfModifiers m) {
  return result<F>(sum_to_odd(operand<F>(a, m.ftz), -operand<F>(b, m.ftz)), m);
}
template <Format F>
std::uint32_t half_mul(std::uint32_t a, std::uint32_t b, HalfModifiers m) {
  return result<F>(operand<F>(a, m.ftz) * operand<F>(b, m.ftz), m);
}
template <Format F>
std::uint32_t half_fma(std::uint32_t a, std::uint32_t b, std::uint32_t c, HalfModifiers m) {
  return result<F>(sum_to_odd(operand<F>(a, m.ftz) * operand<F>(b, m.ftz), operand<F>(c, m.ftz)), m);
}
template <Format F>
std::uint32_t half_min(std::uint32_t a, std::uint32_t b, MinMaxModifiers m) {
  return pick_half<F>(a, b, m, false);
}
template <Format F>
std::uint32_t half_max(std::uint32_t a, std::uint32_t b, MinMaxModifiers m) {
  return pick_half<F>(a, b, m, true);
}

template std::uint32_t half_add<Format::f16>(std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_add<Format::bf16>(std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_sub<Format::f16>(std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_sub<Format::bf16>(std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_mul<Format::f16>(std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_mul<Format::bf16>(std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_fma<Format::f16>(std::uint32_t, std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_fma<Format::bf16>(std::uint32_t, std::uint32_t, std::uint32_t, HalfModifiers);
template std::uint32_t half_min<Format::f16>(std::uint32_t, std::uint32_t, MinMaxModifiers);
template std::uint32_t half_min<Format::bf16>(std::uint32_t, std::uint32_t, MinMaxModifiers);
template std::uint32_t half_max<Format::f16>(std::uint32_t, std::uint32_t, MinMaxModifiers);
template std::uint32_t half_max<Format::bf16>(std::uint32_t, std::uint32_t, MinMaxModifiers);

}  // namespace tessera::emulator::math
