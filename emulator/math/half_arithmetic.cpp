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

// decode<F>, by the bits of a float where the number is normal.
template <Format F>
double operand(std::uint32_t code, bool ftz) {
  constexpr FormatInfo kInfo = info_of(F);
  constexpr std::uint32_t kOne = 1u << kInfo.fraction_bits, kField = ((1u << kInfo.exponent_bits) - 1) * kOne;
  if ((code & kField) - kOne < kField - kOne) {
    const std::uint32_t magnitude = (code & 0x7FFF) << (23 - kInfo.fraction_bits);
    return static_cast<double>(float_of((code & 0x8000) << 16 | (magnitude + ((127u - kInfo.bias) << 23))));
  }
  return decode<F>(ftz ? flush_half<F>(code) : code);
}

// encode<F> to the nearest even, by the bits of a double where the result is normal and cannot overflow.
template <Format F>
std::uint32_t nearest(double value) {
  constexpr FormatInfo kInfo = info_of(F);
  constexpr int kCut = 52 - kInfo.fraction_bits;
  constexpr std::uint64_t kLeast = std::uint64_t{1023 + 1 - kInfo.bias} << 52;
  constexpr std::uint64_t kMost = std::uint64_t{1023 + kInfo.bias} << 52;  // the last binade may round up to infinity
  const std::uint64_t bits = bits_of(value), magnitude = bits & ~(std::uint64_t{1} << 63);
  if (magnitude - kLeast < kMost - kLeast) {
    const std::uint64_t half = (std::uint64_t{1} << (kCut - 1)) - 1 + (magnitude >> kCut & 1);
    const std::uint64_t code = (magnitude - kLeast + half) >> kCut;
    return static_cast<std::uint32_t>((code + (std::uint64_t{1} << kInfo.fraction_bits)) | (bits >> 63) << 15);
  }
  return static_cast<std::uint32_t>(encode<F>(value, Rounding::nearest_even));
}

template <Format F>
std::uint32_t result(double value, HalfModifiers m) {
  if (value != value) return m.sat ? 0 : kCanonicalNan16;
  // .ftz (f16 only) flushes what is tiny after rounding to 11 bits without a bound of the exponent (H200).
  if (m.ftz && std::fabs(value) < 0x1p-14 - 0x1p-26) value = std::copysign(0.0, value);
  if (m.relu && std::signbit(value)) return 0;
  if (m.sat) value = !(value > 0.0) ? 0.0 : value > 1.0 ? 1.0 : value;
  const std::uint32_t code = nearest<F>(value);
  return m.ftz ? flush_half<F>(code) : code;
}

template <Format F>
std::uint32_t pick_half(std::uint32_t a, std::uint32_t b, MinMaxModifiers m, bool larger) {
  // Through f32, which holds both exactly; a NaN operand stays one, the result is never rounded.
  const auto widen = [&m](std::uint32_t code) { return static_cast<float>(operand<F>(code, m.ftz)); };
  const MinMaxModifiers inner{false, m.nan, m.xorsign_abs};
  const float winner = larger ? max(widen(a), widen(b), inner) : min(widen(a), widen(b), inner);
  return nearest<F>(static_cast<double>(winner));
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
