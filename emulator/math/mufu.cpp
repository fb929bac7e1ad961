// The special-function unit as a table of quadratics.
//
// Every function reduces its argument to a table row and a fraction x of 16 or 17 bits, and evaluates
//     S = c0 + c1 * x + c2 * square(x)
// whose result is cut, not rounded, to 24 significant bits. c1 * x is exact. square(x) comes from a folded squarer: the
// sum of x_i 2^2i and of x_i x_j 2^(i+j+1) for i < j, in which every bit product below 2^-15 of full scale is absent.
//
// Reductions: ex2 splits |x|, cut to 23 fraction bits, into integer and fraction, and complements both bitwise when x
// is negative (unless the fraction is zero); lg2 adds exponent and table in fixed point and complements a negative sum
// the same way; rsqrt and sqrt take the exponent's parity into the row; tanh picks a range by binade.
#include "emulator/math/mufu.h"

#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "emulator/math/bits.h"
#include "emulator/math/convert.h"
#include "emulator/math/mufu_tables.h"

namespace tessera::emulator::math {
namespace {

constexpr std::uint32_t kSignF32 = 0x80000000;

// square(x) for all x of kBits bits, in units of the lowest column kept: 2^(2 * kBits - 15). The highest bit i of x
// adds its own square and its products with the bits below; all of those at or above the cut are whole units.
template <int kBits>
class Squarer {
 public:
  Squarer() : table_(std::make_unique<std::array<std::uint16_t, 1 << kBits>>()) {
    constexpr int kCut = 2 * kBits - 15;
    for (int i = 0; i < kBits; ++i) {
      for (std::uint64_t low = 0; low < std::uint64_t{1} << i; ++low) {
        const std::uint64_t added = (std::uint64_t{1} << (2 * i) >> kCut) + (low << (i + 1) >> kCut);
        (*table_)[low | std::uint64_t{1} << i] = static_cast<std::uint16_t>((*table_)[low] + added);
      }
    }
  }
  std::int64_t operator()(std::uint32_t x) const { return (*table_)[x]; }

 private:
  std::unique_ptr<std::array<std::uint16_t, 1 << kBits>> table_;
};

const Squarer<17>& squarer17() {
  static const Squarer<17> squarer;
  return squarer;
}
std::int64_t square17(std::uint32_t x) { return squarer17()(x); }
std::int64_t square16(std::uint32_t x) {
  static const Squarer<16> squarer;
  return squarer(x);
}

// S in 2^-16 of the table's unit (ex2 2^-23; rcp, rsqrt, sqrt, lg2 2^-24; tanh 2^-30). c1 is even where x has 17 bits.
std::int64_t evaluate17(const Quadratic& q, std::uint32_t x) {
  return q.c0 + std::int64_t{q.c1 / 2} * x + q.c2 * square17(x) * 2;
}
std::int64_t evaluate16(const Quadratic& q, std::uint32_t x) {
  return q.c0 + std::int64_t{q.c1} * x + q.c2 * square16(x) * 2;
}

// sign * value * 2^lsb cut to 24 significant bits; what would be subnormal becomes zero.
std::uint32_t cut(std::uint32_t sign, std::int64_t signed_value, int lsb) {
  const auto value = static_cast<std::uint64_t>(signed_value);
  if (value == 0) return sign;
  const int top = bit_width(value) - 1;
  const int exponent = top + lsb;
  if (exponent < -126) return sign;
  if (exponent > 127) return sign | kInfinityF32;
  const std::uint64_t significand = top >= 23 ? value >> (top - 23) : value << (23 - top);
  return sign | static_cast<std::uint32_t>(exponent + 127) << 23 | (static_cast<std::uint32_t>(significand) & 0x7FFFFF);
}

struct Fields {
  std::uint32_t sign;
  int exponent;  ///< unbiased; 128 for infinity
  std::uint32_t fraction;
  bool zero;  ///< zero or subnormal: the unit flushes
};
Fields fields_of(std::uint32_t x) {
  const std::uint32_t field = x >> 23 & 255;
  return {x & kSignF32, static_cast<int>(field) - 127, x & 0x7FFFFF, field == 0};
}

float as_float(std::uint32_t x) { return float_of(x); }

// Subnormal arguments of the forms without .ftz are scaled into the normal range, and the result back.
template <class Unit, class Undo>
std::uint32_t with_scaled_subnormals(std::uint32_t x, Unit unit, Undo undo) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  if ((x & ~kSignF32) >= 0x00800000) return unit(x);
  const std::uint32_t result = unit(bits_of(as_float(x) * 0x1p24f));
  return is_nan_f32(result) ? kCanonicalNanF32 : bits_of(undo(as_float(result)));
}

std::uint32_t cut_to_bf16(std::uint32_t x) { return is_nan_f32(x) ? kCanonicalNan16 : x >> 16; }

// Toward zero with subnormals kept, but too large becomes infinity.
std::uint32_t cut_to_f16(std::uint32_t x) {
  const CvtModifiers toward_zero{.rounding = Rounding::toward_zero};
  if (!is_nan_f32(x) && (x & ~kSignF32) >= bits_of(65536.0f)) return (x >> 16 & 0x8000) | 0x7C00;
  return static_cast<std::uint32_t>(convert<Format::f16, Format::f32>(x, toward_zero));
}

std::uint32_t widen_f16(std::uint32_t x) { return static_cast<std::uint32_t>(convert<Format::f32, Format::f16>(x)); }

[[gnu::always_inline]] inline std::uint32_t ex2_of(const Squarer<17>& squarer, std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  const Fields f = fields_of(x);
  if (f.zero) return bits_of(1.0f);
  if (f.exponent >= 8) return f.sign != 0 ? 0 : kInfinityF32;
  const std::uint64_t significand = f.fraction | 0x800000;
  // |x| in units of 2^-23, cut.
  const std::uint64_t fixed = f.exponent >= 0    ? significand << f.exponent
                              : f.exponent > -32 ? significand >> -f.exponent
                                                 : 0;
  int whole = static_cast<int>(fixed >> 23);
  auto fraction = static_cast<std::uint32_t>(fixed & 0x7FFFFF);
  if (f.sign != 0) {
    if (fraction != 0) {
      whole = -whole - 1;
      fraction = ~fraction & 0x7FFFFF;
    } else {
      whole = -whole;
    }
  }
  const Quadratic& q = kEx2[fraction >> 17];
  const std::uint32_t low = fraction & 0x1FFFF;
  return cut(0, (q.c0 + std::int64_t{q.c1 / 2} * low + q.c2 * squarer(low) * 2) >> 16, whole - 23);
}

}  // namespace

std::uint32_t ex2_ftz(std::uint32_t x) { return ex2_of(squarer17(), x); }

std::uint32_t rcp_ftz(std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  const Fields f = fields_of(x);
  if (f.exponent == 128) return f.sign;
  if (f.zero) return f.sign | kInfinityF32;
  return cut(f.sign, evaluate16(kRcp[f.fraction >> 16], f.fraction & 0xFFFF) >> 16, -24 - f.exponent);
}

std::uint32_t rsqrt_ftz(std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  const Fields f = fields_of(x);
  if (f.zero) return f.sign | kInfinityF32;
  if (f.sign != 0) return kCanonicalNanF32;
  if (f.exponent == 128) return 0;
  const int odd = f.exponent & 1;
  if (f.fraction == 0 && odd == 0) return cut(0, 1, -f.exponent / 2);  // powers of four are exact
  const auto row = static_cast<std::uint32_t>(odd) * 64 + (f.fraction >> 17);
  return cut(0, evaluate17(kRsqrt[row], f.fraction & 0x1FFFF) >> 16, -24 - (f.exponent - odd) / 2);
}

namespace {

constexpr std::uint64_t kCanonicalNanF64 = 0x7FFFFFFF'00000000;
constexpr std::uint64_t kInfinityF64 = 0x7FF00000'00000000;

/// What the f64 forms of rcp and rsqrt see of their source: its high word.
struct HighWord {
  std::uint64_t sign;
  int exponent;            // biased
  std::uint32_t fraction;  // 20 bits
};
HighWord high_word(std::uint64_t x) {
  return {x & std::uint64_t{1} << 63, static_cast<int>(x >> 52 & 0x7FF), static_cast<std::uint32_t>(x >> 32 & 0xFFFFF)};
}
/// An f32 result in (0.25, 1], whose last three bits are dropped, times 2^exponent; below the normal numbers zero.
std::uint64_t widen(std::uint64_t sign, std::uint32_t f32, int exponent) {
  const int biased = static_cast<int>(f32 >> 23) - 127 + 1023 + exponent;
  if (biased <= 0) return sign;
  return sign | static_cast<std::uint64_t>(biased) << 52 | static_cast<std::uint64_t>(f32 >> 3 & 0xFFFFF) << 32;
}

}  // namespace

// On an H200 all 2^20 fractions are those of the f32 forms, cut.
std::uint64_t rcp_f64(std::uint64_t x) {
  const HighWord h = high_word(x);
  if (h.exponent == 0x7FF) return h.fraction != 0 ? kCanonicalNanF64 : h.sign;
  if (h.exponent == 0) return h.sign | kInfinityF64;
  return widen(h.sign, rcp_ftz(127u << 23 | h.fraction << 3), 1023 - h.exponent);
}

std::uint64_t rsqrt_f64(std::uint64_t x) {
  const HighWord h = high_word(x);
  if (h.exponent == 0x7FF && h.fraction != 0) return kCanonicalNanF64;
  if (h.exponent == 0) return h.sign | kInfinityF64;
  if (h.sign != 0) return kCanonicalNanF64;
  if (h.exponent == 0x7FF) return 0;
  const int odd = (h.exponent - 1023) & 1;
  return widen(0, rsqrt_ftz(static_cast<std::uint32_t>(127 + odd) << 23 | h.fraction << 3),
               -(h.exponent - 1023 - odd) / 2);
}

std::uint64_t rsqrt_f64_full(std::uint64_t x) {
  const HighWord h = high_word(x);
  const auto value = std::bit_cast<double>(x);
  if (value == 0) return h.sign | kInfinityF64;
  if (std::isnan(value)) return std::bit_cast<std::uint64_t>(value + value);
  if (h.sign != 0) return 0xFFF8000000000000;
  if (h.exponent == 0x7FF) return 0;
  const bool is_subnormal = h.exponent == 0;
  const double scaled = is_subnormal ? value * 0x1p54 : value;
  const auto first = std::bit_cast<double>(rsqrt_f64(std::bit_cast<std::uint64_t>(scaled)));
  const double error = std::fma(scaled, -(first * first), 1.0);
  const double better = std::fma(std::fma(error, 0.375, 0.5), first * error, first);
  return std::bit_cast<std::uint64_t>(is_subnormal ? better * 0x1p27 : better);
}

std::uint32_t sqrt_ftz(std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  const Fields f = fields_of(x);
  if (f.zero) return f.sign;
  if (f.sign != 0) return kCanonicalNanF32;
  if (f.exponent == 128) return kInfinityF32;
  const int odd = f.exponent & 1;
  const auto row = static_cast<std::uint32_t>(odd) * 64 + (f.fraction >> 17);
  return cut(0, evaluate17(kSqrt[row], f.fraction & 0x1FFFF) >> 16, -24 + (f.exponent - odd) / 2);
}

std::uint32_t lg2_ftz(std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  const Fields f = fields_of(x);
  if (f.zero) return kSignF32 | kInfinityF32;
  if (f.sign != 0) return kCanonicalNanF32;
  if (f.exponent == 128) return kInfinityF32;
  if (f.fraction == 0 && f.exponent == 0) return 0;  // the other powers of two go through the table
  // Fixed point in 2^-40, then cut to 2^-36.
  const std::int64_t table = evaluate17(kLg2[f.fraction >> 17], f.fraction & 0x1FFFF);
  const std::int64_t value = (std::int64_t{f.exponent} * (std::int64_t{1} << 40) + table) >> 4;
  return value < 0 ? cut(kSignF32, ~value, -36) : cut(0, value, -36);
}

std::uint32_t tanh_f32(std::uint32_t x) {
  const std::uint32_t sign = x & kSignF32;
  const std::uint32_t magnitude = x & ~kSignF32;
  if (magnitude > kInfinityF32) return kCanonicalNanF32;
  if (magnitude < kTanhRange[0].from) return x;
  for (const TanhRange& range : kTanhRange) {
    if (magnitude >= range.to) continue;
    const std::uint32_t place = (magnitude & 0x7FFFFF) >> range.drop;
    const auto row = static_cast<std::uint32_t>(range.first) + (place >> 17);
    return cut(sign, evaluate17(kTanh[row], place & 0x1FFFF), -46);
  }
  return sign | bits_of(1.0f);
}

std::uint32_t ex2_full(std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  if (as_float(x) >= -126.0f) return ex2_ftz(x);
  const float root = as_float(ex2_ftz(bits_of(as_float(x) * 0.5f)));
  return bits_of(root * root);
}

std::uint32_t rcp_full(std::uint32_t x) {
  if (is_nan_f32(x)) return kCanonicalNanF32;
  const float magnitude = std::fabs(as_float(x));
  const float scale = magnitude < 0x1p-126f ? 0x1p24f : magnitude > 0x1p126f ? 0.25f : 1.0f;
  return bits_of(scale * as_float(rcp_ftz(bits_of(as_float(x) * scale))));
}

std::uint32_t lg2_full(std::uint32_t x) {
  return with_scaled_subnormals(x, lg2_ftz, [](float r) { return r - 24.0f; });
}
std::uint32_t rsqrt_full(std::uint32_t x) {
  return with_scaled_subnormals(x, rsqrt_ftz, [](float r) { return r * 0x1p12f; });
}
std::uint32_t sqrt_full(std::uint32_t x) {
  return with_scaled_subnormals(x, sqrt_ftz, [](float r) { return r * 0x1p-12f; });
}

std::uint32_t ex2_f16(std::uint32_t x) { return cut_to_f16(ex2_full(widen_f16(x))); }
std::uint32_t ex2_bf16(std::uint32_t x) { return cut_to_bf16(ex2_ftz(x << 16)); }
std::uint32_t tanh_f16(std::uint32_t x) { return cut_to_f16(tanh_f32(widen_f16(x))); }
std::uint32_t tanh_bf16(std::uint32_t x) { return cut_to_bf16(tanh_f32(x << 16)); }

namespace {
std::uint32_t from_double(double value, bool ftz) {
  if (value != value) return kCanonicalNanF32;
  const std::uint32_t result = bits_of(static_cast<float>(value));
  return ftz ? flush_f32(result) : result;
}
double operand(std::uint32_t x, bool ftz) { return static_cast<double>(float_of(ftz ? flush_f32(x) : x)); }
}  // namespace

// The angle that the unit sees: the source times 1 / (2 pi), rounded to f32 toward zero (the FMUL.RZ that ptxas emits),
// and of that the part within one turn. So a large source has no fraction left and stands for zero, as on an H200.
static double angle(std::uint32_t x, bool ftz) {
  const float turns = float_of(
      static_cast<std::uint32_t>(encode<Format::f32>(operand(x, ftz) * 0.15915493667125702, Rounding::toward_zero)));
  constexpr double kTurn = 6.283185307179586;
  return std::remainder(static_cast<double>(turns), 1.0) * kTurn;
}
std::uint32_t sin_approx(std::uint32_t x, bool ftz) { return from_double(std::sin(angle(x, ftz)), ftz); }
std::uint32_t cos_approx(std::uint32_t x, bool ftz) { return from_double(std::cos(angle(x, ftz)), ftz); }

std::uint32_t div_approx(std::uint32_t a, std::uint32_t b, bool ftz) {
  if (ftz) return from_double(operand(a, true) * static_cast<double>(float_of(rcp_ftz(b))), true);
  const float magnitude = std::fabs(float_of(b));
  if (magnitude > 0x1p126f && magnitude < HUGE_VALF) {
    const bool infinite = (a & ~kSignF32) >= kInfinityF32;
    return infinite ? kCanonicalNanF32 : (a ^ b) & kSignF32;
  }
  return div_full(a, b, false);
}

std::uint32_t div_full(std::uint32_t a, std::uint32_t b, bool ftz) {
  const double y = operand(b, ftz);
  const double magnitude = std::fabs(y);
  const double scale = magnitude < 0x1p-126 ? 0x1p24 : magnitude > 0x1p126 ? 0.25 : 1.0;
  const float reciprocal = float_of(rcp_ftz(bits_of(static_cast<float>(y * scale))));
  return from_double(operand(a, ftz) * static_cast<double>(reciprocal) * scale, ftz);
}

}  // namespace tessera::emulator::math
