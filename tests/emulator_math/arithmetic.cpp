// f32 and f64 in every direction against the host's floating-point unit with its rounding mode set; f16 and bf16
// against 128-bit integers.
#include <doctest/doctest.h>

#include <cfenv>
#include <cmath>

#include "emulator/math/float_arithmetic.h"
#include "emulator/math/half_arithmetic.h"
#include "tests/emulator_math/random.h"

namespace tessera::emulator::math {
namespace {

struct Direction {
  Rounding mode;
  int host;
};
constexpr Direction kDirections[] = {{Rounding::nearest_even, FE_TONEAREST},
                                     {Rounding::toward_zero, FE_TOWARDZERO},
                                     {Rounding::down, FE_DOWNWARD},
                                     {Rounding::up, FE_UPWARD}};

// One host operation in a given direction; volatile keeps the compiler from moving it out.
template <class T, class Operation>
T on_host(int direction, Operation operation, T a, T b, T c) {
  volatile T x = a;
  volatile T y = b;
  volatile T z = c;
  std::fesetround(direction);
  volatile T result = operation(static_cast<T>(x), static_cast<T>(y), static_cast<T>(z));
  std::fesetround(FE_TONEAREST);
  return result;
}

// NaN results are ours to choose, all else must agree in every bit.
template <class T>
bool agree(T ours, T host) {
  return ours != ours ? host != host : bits_of(ours) == bits_of(host);
}

float any_f32(std::uint64_t seed, std::uint64_t i) {
  const std::uint64_t r = test::random_bits(seed, i);
  auto u = static_cast<std::uint32_t>(r);
  if ((r >> 32 & 3) == 0) u = (u & 0x807FFFFF) | static_cast<std::uint32_t>(120 + (r >> 40) % 16) << 23;
  if ((r >> 32 & 63) == 1) u &= 0x80FFFFFF;  // zero's neighbourhood
  if ((r >> 32 & 15) == 2) u &= 0xFFFFF000;
  return float_of(u);
}

double any_f64(std::uint64_t seed, std::uint64_t i) {
  const std::uint64_t r = test::random_bits(seed, i);
  std::uint64_t u = test::random_bits(seed + 100, i);
  if ((r & 3) == 0) u = (u & 0x800FFFFFFFFFFFFF) | (1000 + (r >> 40) % 60) << 52;
  if ((r & 63) == 1) u &= 0x801FFFFFFFFFFFFF;
  if ((r & 15) == 2) u &= 0xFFFFFFFF00000000;
  return double_of(u);
}

TEST_CASE("f32 in every direction equals the host") {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const float a = any_f32(1, i);
    const float b = any_f32(2, i);
    float c = any_f32(3, i);
    if (i % 5 == 0) c = -a * b;  // cancellation
    for (const Direction& d : kDirections) {
      const ArithmeticModifiers m{.rounding = d.mode};
      bool ok = agree(add(a, b, m), on_host(
                                        d.host, [](float x, float y, float) { return x + y; }, a, b, c));
      ok &= agree(sub(a, b, m), on_host(
                                    d.host, [](float x, float y, float) { return x - y; }, a, b, c));
      ok &= agree(mul(a, b, m), on_host(
                                    d.host, [](float x, float y, float) { return x * y; }, a, b, c));
      ok &= agree(fma(a, b, c, m), on_host(
                                       d.host, [](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c));
      ok &= agree(div(a, b, m), on_host(
                                    d.host, [](float x, float y, float) { return x / y; }, a, b, c));
      ok &= agree(sqrt(a, m), on_host(
                                  d.host, [](float x, float, float) { return std::sqrt(x); }, a, b, c));
      if (d.mode == Rounding::nearest_even) {
        ok &= bits_of(add_nearest(a, b)) == bits_of(add(a, b)) && bits_of(mul_nearest(a, b)) == bits_of(mul(a, b)) &&
              bits_of(fma_nearest(a, b, c)) == bits_of(fma(a, b, c));
      }
      if (!ok) FAIL_CHECK("a " << bits_of(a) << " b " << bits_of(b) << " c " << bits_of(c) << " host mode " << d.host);
    }
  }
}

TEST_CASE("f64 in every direction equals the host") {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double a = any_f64(1, i);
    const double b = i % 7 == 0 ? -std::nextafter(a, 0.0) : any_f64(2, i);
    double c = any_f64(3, i);
    if (i % 5 == 0) c = -a * b;
    if (i % 11 == 0) c = std::ldexp(a * b, static_cast<int>(i / 11 % 240) - 120);
    for (const Direction& d : kDirections) {
      bool ok = agree(add(a, b, d.mode), on_host(
                                             d.host, [](double x, double y, double) { return x + y; }, a, b, c));
      ok &= agree(sub(a, b, d.mode), on_host(
                                         d.host, [](double x, double y, double) { return x - y; }, a, b, c));
      ok &= agree(mul(a, b, d.mode), on_host(
                                         d.host, [](double x, double y, double) { return x * y; }, a, b, c));
      ok &= agree(fma(a, b, c, d.mode),
                  on_host(
                      d.host, [](double x, double y, double z) { return std::fma(x, y, z); }, a, b, c));
      ok &= agree(div(a, b, d.mode), on_host(
                                         d.host, [](double x, double y, double) { return x / y; }, a, b, c));
      ok &= agree(sqrt(a, d.mode), on_host(
                                       d.host, [](double x, double, double) { return std::sqrt(x); }, a, b, c));
      if (!ok) FAIL_CHECK("a " << bits_of(a) << " b " << bits_of(b) << " c " << bits_of(c) << " host mode " << d.host);
    }
  }
}

TEST_CASE("f32 flushing, saturation, NaN") {
  const float tiny = 1e-40f;
  CHECK(bits_of(add(tiny, tiny)) != 0);
  CHECK(bits_of(add(tiny, tiny, {.ftz = true})) == 0);
  CHECK(bits_of(mul(-tiny, 1.0f, {.ftz = true})) == 0x80000000);
  CHECK(bits_of(mul(0x1p-100f, -0x1p-40f, {.ftz = true})) == 0x80000000);
  CHECK(fma(2.0f, 3.0f, 4.0f, {.sat = true}) == 1.0f);
  CHECK(bits_of(add(-1.0f, -0.0f, {.sat = true})) == 0);
  CHECK(bits_of(add(float_of(0xFFC12345), 1.0f)) == kCanonicalNanF32);
  CHECK(bits_of(add(float_of(0xFFC12345), 1.0f, {.sat = true})) == 0);
  CHECK(bits_of(sqrt(-1.0f)) == kCanonicalNanF32);
  CHECK(bits_of(rcp(-0.0f)) == 0xFF800000);
  CHECK(bits_of(add(double_of(0x7FF0000000000001), 1.0)) == 0x7FF8000000000001);
  CHECK(bits_of(sqrt(-1.0)) == 0xFFF8000000000000);
}

TEST_CASE("min and max") {
  const float nan = float_of(0xFFC12345);
  CHECK(bits_of(max(-0.0f, 0.0f)) == 0);
  CHECK(bits_of(min(0.0f, -0.0f)) == 0x80000000);
  CHECK(max(nan, 1.0f) == 1.0f);
  CHECK(min(1.0f, nan) == 1.0f);
  CHECK(bits_of(max(nan, 1.0f, {.nan = true})) == kCanonicalNanF32);
  CHECK(bits_of(max(nan, nan)) == kCanonicalNanF32);
  CHECK(max(-3.0f, 2.0f, {.xorsign_abs = true}) == -3.0f);
  CHECK(min(-3.0f, -2.0f, {.xorsign_abs = true}) == 2.0f);
  CHECK(bits_of(max(-1.0f, 1e-40f, {.ftz = true})) == 0);
  CHECK(min(-1.0, double_of(0x7FF8000000000000)) == -1.0);
}

// a * b + c of 16-bit floats, exact in 128-bit integers (all lsb's lie between -266 and 137, but only nearby ones meet:
// a term under 2^-90 of the other is replaced by a unit that no rounding can mistake).
template <Format F>
std::uint32_t reference_fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  constexpr FormatInfo f = info_of(F);
  const Unpacked x = unpack(f, a);
  const Unpacked y = unpack(f, b);
  const Unpacked z = unpack(f, c);
  Int128 p = static_cast<Int128>(x.significand * y.significand);
  if (x.negative != y.negative) p = -p;
  Int128 q = static_cast<Int128>(z.significand);
  if (z.negative) q = -q;
  int lsb = x.lsb + y.lsb;
  int gap = z.lsb - lsb;
  const auto sign_of = [](Int128 v) { return static_cast<Int128>(v > 0) - static_cast<Int128>(v < 0); };
  if (q == 0 || p == 0) {
    if (p == 0) lsb = z.lsb;
  } else if (gap > 90) {
    q <<= 60;
    p = sign_of(p);
    lsb = z.lsb - 60;
  } else if (gap >= 0) {
    q <<= gap;
  } else if (gap < -90) {
    p <<= 60;
    q = sign_of(q);
    lsb -= 60;
  } else {
    p <<= -gap;
    lsb = z.lsb;
  }
  const Int128 sum = p + q;
  if (sum == 0) return x.negative != y.negative && z.negative && p == 0 && q == 0 ? 0x8000 : 0;
  return static_cast<std::uint32_t>(
      pack(f, sum < 0, static_cast<Uint128>(sum < 0 ? -sum : sum), lsb, Rounding::nearest_even));
}

template <Format F>
void check_half() {
  constexpr std::uint32_t kOne = F == Format::f16 ? 0x3C00 : 0x3F80;
  constexpr std::uint32_t kTop = static_cast<std::uint32_t>(max_finite_code(info_of(F)));
  const auto finite = [](std::uint64_t r) {
    const auto code = static_cast<std::uint32_t>(r & 0xFFFF);
    return (code & 0x7FFF) > kTop ? code & 0x8FFF : code;
  };
  for (std::uint64_t i = 0; i < 400000; ++i) {
    const std::uint64_t r = test::random_bits(5, i);
    const std::uint32_t a = finite(r);
    const std::uint32_t b = finite(r >> 16);
    std::uint32_t c = finite(r >> 32);
    if (i % 4 == 0) c = finite((half_mul<F>(a, b) ^ 0x8000) + (r >> 60));
    const bool ok = half_fma<F>(a, b, c) == reference_fma<F>(a, b, c) &&
                    half_add<F>(a, c) == reference_fma<F>(a, kOne, c) &&
                    half_sub<F>(c, a) == reference_fma<F>(a, kOne | 0x8000, c) &&
                    (half_mul<F>(a, b) & 0x7FFF) == (reference_fma<F>(a, b, 0) & 0x7FFF);
    if (!ok) FAIL_CHECK("a " << a << " b " << b << " c " << c);
  }
}

TEST_CASE("f16 and bf16: one rounding") {
  check_half<Format::f16>();
  check_half<Format::bf16>();
}

// Any codes, NaNs and infinities too; those near each other's negatives, whose sums are small, and zeros; of f16
// products that lie 2^-20 of theirs beside a half of the addend's last place, more than f32 shows of the sum.
template <Format F, HalfOperation kOperation>
int differing_lanes() {
  int wrong = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    std::uint16_t a[8], b[8], c[8], d[8];
    for (std::uint64_t lane = 0; lane < 8; ++lane) {
      const std::uint64_t r = test::random_bits(7, i * 8 + lane);
      a[lane] = static_cast<std::uint16_t>(i % 16 == 5 ? (r & 0x8000) : r);
      b[lane] = static_cast<std::uint16_t>(i % 4 == 1 ? a[lane] ^ 0x8000 ^ (r >> 61) : r >> 16);
      c[lane] = static_cast<std::uint16_t>(i % 4 == 2 ? (half_mul<F>(a[lane], b[lane]) ^ 0x8000) + (r >> 60) : r >> 32);
      if (F == Format::f16 && i % 8 == 3) {
        const auto exponent = static_cast<std::uint16_t>(r >> 16 & 7);
        a[lane] = static_cast<std::uint16_t>(0x3BFE | (r & 0x8000));
        b[lane] = static_cast<std::uint16_t>(0x3C01 - exponent * 0x400);
        c[lane] = static_cast<std::uint16_t>((26 - exponent) * 0x400 + static_cast<int>(r >> 32 & 0x83FF));
      }
    }
    half_lanes<F, kOperation>(a, b, c, d, 8);
    for (int lane = 0; lane < 8; ++lane) {
      const std::uint32_t x = a[lane], y = b[lane];
      const std::uint32_t want = kOperation == HalfOperation::fma   ? half_fma<F>(x, y, c[lane])
                                 : kOperation == HalfOperation::add ? half_add<F>(x, y)
                                 : kOperation == HalfOperation::sub ? half_sub<F>(x, y)
                                                                    : half_mul<F>(x, y);
      wrong += d[lane] == want ? 0 : 1;
    }
  }
  return wrong;
}

TEST_CASE("f16 and bf16: many at once as one by one") {
  CHECK(differing_lanes<Format::f16, HalfOperation::fma>() == 0);
  CHECK(differing_lanes<Format::f16, HalfOperation::add>() == 0);
  CHECK(differing_lanes<Format::f16, HalfOperation::sub>() == 0);
  CHECK(differing_lanes<Format::f16, HalfOperation::mul>() == 0);
  CHECK(differing_lanes<Format::bf16, HalfOperation::fma>() == 0);
  CHECK(differing_lanes<Format::bf16, HalfOperation::add>() == 0);
  CHECK(differing_lanes<Format::bf16, HalfOperation::sub>() == 0);
  CHECK(differing_lanes<Format::bf16, HalfOperation::mul>() == 0);
}

TEST_CASE("f16 modifiers and pairs") {
  CHECK(half_fma<Format::f16>(0x3C00, 0xC000, 0x3C00, {.relu = true}) == 0);
  CHECK(half_fma<Format::f16>(0x7E00, 0xC000, 0x3C00, {.relu = true}) == kCanonicalNan16);
  CHECK(half_add<Format::f16>(0x4000, 0x4000, {.sat = true}) == 0x3C00);
  CHECK(half_add<Format::f16>(0x0001, 0x0001, {.ftz = true}) == 0);
  CHECK(half_add<Format::f16>(0x8000, 0x8000) == 0x8000);
  CHECK(half_max<Format::bf16>(0x8000, 0x0000) == 0);
  CHECK(half_max<Format::bf16>(0x7FC0, 0x3F80) == 0x3F80);
  CHECK(half_max<Format::bf16>(0x7FC0, 0x3F80, {.nan = true}) == kCanonicalNan16);
  CHECK(half_min<Format::f16>(0xC200, 0xC000, {.xorsign_abs = true}) == 0x4000);
  CHECK(on_pairs(half_add<Format::f16>, 0x3C004000u, 0x40003C00u, HalfModifiers{}) == 0x42004200);
}

}  // namespace
}  // namespace tessera::emulator::math
