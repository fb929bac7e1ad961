// Directed roundings of f32 go through double, rounded to odd; those of f64 through 128-bit integers (Exact). The
// rounding mode of the host is never changed: a library must not touch it.
#include "emulator/math/float_arithmetic.h"

#include <cmath>
#include <utility>

namespace tessera::emulator::math {
namespace {

float flush_if(float value, bool ftz) { return ftz ? float_of(flush_f32(bits_of(value))) : value; }

float finish(float value, ArithmeticModifiers m) {
  if (value != value) return m.sat ? 0.0f : float_of(kCanonicalNanF32);
  if (m.ftz) value = float_of(flush_f32(bits_of(value)));
  if (m.sat) value = !(value > 0.0f) ? 0.0f : value > 1.0f ? 1.0f : value;
  return value;
}

// A double that stands for an exact result (or one rounded to odd), rounded to f32.
float narrow(double value, ArithmeticModifiers m) {
  if (value != value || m.rounding == Rounding::nearest_even) return finish(static_cast<float>(value), m);
  return finish(float_of(static_cast<std::uint32_t>(encode<Format::f32>(value, m.rounding))), m);
}

// The sign of an exact zero sum of opposite terms: + in every direction but down. x + y == 0 is known.
double zero_sum(double x, double y, Rounding mode) {
  if (std::signbit(x) == std::signbit(y)) return x;  // -0 + -0, +0 + +0
  return mode == Rounding::down ? -0.0 : 0.0;
}

float add_in_double(double x, double y, ArithmeticModifiers m) {
  const double sum = x + y;
  if (sum == 0.0) return narrow(zero_sum(x, y, m.rounding), m);
  return narrow(sum_to_odd(x, y), m);
}

// ---- f64 in a directed mode: sign * magnitude * 2^lsb in 128 bits ----
struct Exact {
  bool negative = false;
  Uint128 magnitude = 0;
  int lsb = 0;
};

Exact exact(double value) {
  const Unpacked u = unpack(info_of(Format::f64), bits_of(value));
  return {u.negative, u.significand, u.lsb};
}

// Nonzero terms of at most 106 bits. Bits that fall below the 126-bit window survive as its last bit ("sticky"): then
// the smaller term is at least 2^20 times smaller, and the last bit is far below the place where 53 bits are rounded.
Exact exact_sum(Exact x, Exact y) {
  if (x.lsb + bit_width(x.magnitude) < y.lsb + bit_width(y.magnitude)) std::swap(x, y);
  const int up = 126 - bit_width(x.magnitude);
  x.magnitude <<= up;
  x.lsb -= up;
  const int down = x.lsb - y.lsb;
  if (down <= 0) {
    y.magnitude <<= -down;
  } else {
    const Uint128 one = 1;
    const bool lost = down >= 128 || (y.magnitude & ((one << down) - 1)) != 0;
    y.magnitude = (down >= 128 ? 0 : y.magnitude >> down) | (lost ? 1 : 0);
  }
  if (x.negative == y.negative) return {x.negative, x.magnitude + y.magnitude, x.lsb};
  if (x.magnitude >= y.magnitude) return {x.negative, x.magnitude - y.magnitude, x.lsb};
  return {y.negative, y.magnitude - x.magnitude, x.lsb};
}

double pack_f64(const Exact& e, Rounding mode) {
  return double_of(pack(info_of(Format::f64), e.negative, e.magnitude, e.lsb, mode));
}

double first_nan(double a, double b, double c = 0.0) {
  for (double v : {a, b, c}) {
    if (v != v) return double_of(bits_of(v) | std::uint64_t{1} << 51);
  }
  return double_of(std::uint64_t{0xFFF8000000000000});
}

// .ftz flushes what is tiny after it was rounded to 24 bits without a bound of the exponent: to nearest, a value less
// than half a unit below the smallest normal number is that number (H200); in the other directions what lies there
// follows from the same rule.
bool is_tiny(double exact_or_odd, Rounding mode) {
  constexpr double kSmallest = 0x1p-126;
  const double magnitude = std::fabs(exact_or_odd);
  if (magnitude == 0.0 || magnitude >= kSmallest) return false;
  const bool is_away = mode == (std::signbit(exact_or_odd) ? Rounding::down : Rounding::up);
  if (is_away) return magnitude <= kSmallest - 0x1p-150;
  return mode != Rounding::nearest_even || magnitude < kSmallest - 0x1p-151;
}

// floor(sqrt(value)), and whether it is exact, bit by bit: value has at most 112 bits.
std::pair<std::uint64_t, bool> integer_sqrt(Uint128 value) {
  std::uint64_t root = 0;
  for (int bit = 56; bit >= 0; --bit) {
    const std::uint64_t trial = root | std::uint64_t{1} << bit;
    if (static_cast<Uint128>(trial) * trial <= value) root = trial;
  }
  return {root, static_cast<Uint128>(root) * root == value};
}

// Quotient and root with two spare bits below the 53 and a sticky one: enough for any direction.
double divide(double a, double b, Rounding mode) {
  Exact x = exact(a);
  const Exact y = exact(b);
  const int up = 126 - bit_width(x.magnitude);
  x.magnitude <<= up;
  const Uint128 quotient = x.magnitude / y.magnitude;
  const bool rest = x.magnitude % y.magnitude != 0;
  return pack_f64({x.negative != y.negative, quotient << 1 | (rest ? 1 : 0), x.lsb - up - y.lsb - 1}, mode);
}

double root(double a, Rounding mode) {
  const Exact x = exact(a);
  int up = 111 - bit_width(x.magnitude);
  if (((x.lsb - up) & 1) != 0) ++up;
  const auto [whole, is_exact] = integer_sqrt(x.magnitude << up);
  return pack_f64({false, static_cast<Uint128>(whole) << 1 | (is_exact ? 0 : 1), (x.lsb - up) / 2 - 1}, mode);
}

}  // namespace

float add(float a, float b, ArithmeticModifiers m) {
  a = flush_if(a, m.ftz);
  b = flush_if(b, m.ftz);
  return m.rounding == Rounding::nearest_even ? finish(a + b, m) : add_in_double(a, b, m);
}

float sub(float a, float b, ArithmeticModifiers m) { return add(a, -b, m); }

float mul(float a, float b, ArithmeticModifiers m) {
  a = flush_if(a, m.ftz);
  b = flush_if(b, m.ftz);
  const double product = static_cast<double>(a) * static_cast<double>(b);
  if (m.ftz && is_tiny(product, m.rounding)) return finish(std::copysign(0.0f, a * b), m);
  if (m.rounding == Rounding::nearest_even) return finish(a * b, m);
  return narrow(product, m);
}

float fma(float a, float b, float c, ArithmeticModifiers m) {
  a = flush_if(a, m.ftz);
  b = flush_if(b, m.ftz);
  c = flush_if(c, m.ftz);
  if (m.ftz) {
    const double sum = sum_to_odd(static_cast<double>(a) * static_cast<double>(b), c);
    if (is_tiny(sum, m.rounding)) return finish(std::signbit(sum) ? -0.0f : 0.0f, m);
  }
  if (m.rounding == Rounding::nearest_even) return finish(fma_nearest(a, b, c), m);
  return add_in_double(static_cast<double>(a) * static_cast<double>(b), c, m);
}

float div(float a, float b, ArithmeticModifiers m) {
  a = flush_if(a, m.ftz);
  b = flush_if(b, m.ftz);
  const float nearest = a / b;
  const bool ordinary = std::isfinite(a) && std::isfinite(b) && a != 0.0f && b != 0.0f;
  if (m.rounding == Rounding::nearest_even || !ordinary) return finish(nearest, m);
  // The quotient as a double, odd when not exact: the remainder a - q * b is exact in double's fma.
  const double x = a;
  const double y = b;
  const double q = x / y;
  const double rest = std::fma(-q, y, x);
  if (rest == 0.0 || (bits_of(q) & 1) != 0) return narrow(q, m);
  const bool larger = std::signbit(rest) == std::signbit(x);  // the exact quotient's magnitude exceeds |q|
  return narrow(double_of(larger ? bits_of(q) + 1 : bits_of(q) - 1), m);
}

float rcp(float a, ArithmeticModifiers m) { return div(1.0f, a, m); }

float sqrt(float a, ArithmeticModifiers m) {
  a = flush_if(a, m.ftz);
  if (m.rounding == Rounding::nearest_even || !(a > 0.0f) || !std::isfinite(a)) return finish(std::sqrt(a), m);
  const double x = a;
  const double q = std::sqrt(x);
  const double rest = std::fma(-q, q, x);
  if (rest == 0.0 || (bits_of(q) & 1) != 0) return narrow(q, m);
  return narrow(double_of(rest > 0.0 ? bits_of(q) + 1 : bits_of(q) - 1), m);
}

double add(double a, double b, Rounding mode) {
  const double nearest = a + b;
  if (nearest != nearest) return first_nan(b, a);
  if (mode == Rounding::nearest_even || !std::isfinite(a) || !std::isfinite(b)) return nearest;
  if (nearest == 0.0) return zero_sum(a, b, mode);
  if (a == 0.0 || b == 0.0) return nearest;
  return pack_f64(exact_sum(exact(a), exact(b)), mode);
}

double sub(double a, double b, Rounding mode) { return add(a, b != b ? b : -b, mode); }

double mul(double a, double b, Rounding mode) {
  const double nearest = a * b;
  if (nearest != nearest) return first_nan(b, a);
  const bool ordinary = std::isfinite(a) && std::isfinite(b) && a != 0.0 && b != 0.0;
  if (mode == Rounding::nearest_even || !ordinary) return nearest;
  const Exact x = exact(a);
  const Exact y = exact(b);
  return pack_f64({x.negative != y.negative, x.magnitude * y.magnitude, x.lsb + y.lsb}, mode);
}

double fma(double a, double b, double c, Rounding mode) {
  const double nearest = std::fma(a, b, c);
  if (nearest != nearest) return first_nan(b, c, a);
  if (mode == Rounding::nearest_even || !std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return nearest;
  if (a == 0.0 || b == 0.0) return add(a * b, c, mode);
  const Exact x = exact(a);
  const Exact y = exact(b);
  const Exact product{x.negative != y.negative, x.magnitude * y.magnitude, x.lsb + y.lsb};
  if (c == 0.0) return pack_f64(product, mode);
  const Exact sum = exact_sum(product, exact(c));
  if (sum.magnitude == 0) return mode == Rounding::down ? -0.0 : 0.0;
  return pack_f64(sum, mode);
}

double div(double a, double b, Rounding mode) {
  const double nearest = a / b;
  if (nearest != nearest) return first_nan(a, b);
  const bool ordinary = std::isfinite(a) && std::isfinite(b) && a != 0.0 && b != 0.0;
  return mode == Rounding::nearest_even || !ordinary ? nearest : divide(a, b, mode);
}

double rcp(double a, Rounding mode) { return div(1.0, a, mode); }

double sqrt(double a, Rounding mode) {
  const double nearest = std::sqrt(a);
  if (nearest != nearest) return first_nan(a, a);
  return mode == Rounding::nearest_even || !(a > 0.0) || !std::isfinite(a) ? nearest : root(a, mode);
}

namespace {

// The operand that wins, by value and then by sign: -0 is below +0.
template <class T>
T pick(T a, T b, bool larger) {
  if (a != b) return (a < b) == larger ? b : a;
  return std::signbit(a) == larger ? b : a;
}

float pick_f32(float a, float b, MinMaxModifiers m, bool larger) {
  a = flush_if(a, m.ftz);
  b = flush_if(b, m.ftz);
  const std::uint32_t sign = (bits_of(a) ^ bits_of(b)) & 0x80000000;
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  if ((a_nan && b_nan) || (m.nan && (a_nan || b_nan))) return float_of(kCanonicalNanF32);
  if (m.xorsign_abs) {
    a = std::fabs(a);
    b = std::fabs(b);
  }
  const float winner = a_nan ? b : b_nan ? a : pick(a, b, larger);
  return m.xorsign_abs ? float_of(bits_of(winner) | sign) : winner;
}

double pick_f64(double a, double b, bool larger) {
  if (a != a) return b != b ? first_nan(b, a) : b;
  return b != b ? a : pick(a, b, larger);
}

}  // namespace

float min(float a, float b, MinMaxModifiers m) { return pick_f32(a, b, m, false); }
float max(float a, float b, MinMaxModifiers m) { return pick_f32(a, b, m, true); }
double min(double a, double b) { return pick_f64(a, b, false); }
double max(double a, double b) { return pick_f64(a, b, true); }

}  // namespace tessera::emulator::math
