// Conversions against integer-only code that an H200 matched on all 2^32 sources (and, for 16 bits, on all of them).
#include "emulator/math/convert.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <limits>

#include "emulator/math/integer_convert.h"
#include "tests/emulator_math/random.h"

namespace tessera::emulator::math {
namespace {

// Nearest even, saturating; NaN 0x7F. fraction: 3 for e4m3, 2 for e5m2.
std::uint32_t reference_fp8(std::uint32_t u, int fraction, bool relu) {
  const int bias = fraction == 3 ? 7 : 15;
  const std::uint32_t top = fraction == 3 ? 0x7E : 0x7B;
  const std::uint32_t sign = u >> 31;
  if (is_nan_f32(u)) return 0x7F;
  if (relu && sign != 0) return 0;
  int e = static_cast<int>(u >> 23 & 255) - 127;
  std::uint32_t m = u & 0x7FFFFF;
  if (e == -127)
    e = -126;
  else
    m |= 0x800000;
  int cut = 23 - fraction;
  if (e < 1 - bias) cut += 1 - bias - e;
  std::uint32_t code = 0;
  if (cut <= 25) {
    const std::uint32_t rest = m & ((1u << cut) - 1);
    const std::uint32_t half = 1u << (cut - 1);
    std::uint32_t kept = m >> cut;
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    code = e < 1 - bias ? kept : (static_cast<std::uint32_t>(e + bias - 1) << fraction) + kept;
  }
  return (code > top ? top : code) | sign << 7;
}

std::uint32_t reference_f16(std::uint32_t u) {
  if (is_nan_f32(u)) return 0x7FFF;
  int e = static_cast<int>(u >> 23 & 255) - 127;
  std::uint32_t m = u & 0x7FFFFF;
  if (e == -127)
    e = -126;
  else
    m |= 0x800000;
  const int cut = e < -14 ? 13 - 14 - e : 13;
  std::uint32_t code = 0;
  if (cut <= 25) {
    const std::uint32_t rest = m & ((1u << cut) - 1);
    const std::uint32_t half = 1u << (cut - 1);
    std::uint32_t kept = m >> cut;
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    code = e < -14 ? kept : (static_cast<std::uint32_t>(e + 14) << 10) + kept;
  }
  return (code > 0x7C00 ? 0x7C00 : code) | (u >> 16 & 0x8000);
}

std::uint32_t drop_bits(std::uint32_t u, int drop, Rounding mode) {
  const std::uint32_t half = 1u << (drop - 1);
  if (mode == Rounding::toward_zero) return u >> drop << drop;
  return (u + (mode == Rounding::nearest_away ? half : half - 1 + (u >> drop & 1))) >> drop << drop;
}

std::uint32_t narrow(std::uint32_t u, Rounding mode) { return is_nan_f32(u) ? 0x7FFF : drop_bits(u, 16, mode) >> 16; }

void check_f32_source(std::uint32_t u) {
  const auto rn = Rounding::nearest_even;
  const auto rz = Rounding::toward_zero;
  const CvtModifiers saturating{.satfinite = true};
  const CvtModifiers relu{.satfinite = true, .relu = true};
  bool same = convert<Format::e4m3, Format::f32>(u, saturating) == reference_fp8(u, 3, false);
  same &= convert<Format::e5m2, Format::f32>(u, saturating) == reference_fp8(u, 2, false);
  same &= convert<Format::e4m3, Format::f32>(u, relu) == reference_fp8(u, 3, true);
  same &= convert<Format::e5m2, Format::f32>(u, relu) == reference_fp8(u, 2, true);
  same &= convert<Format::f16, Format::f32>(u) == reference_f16(u);
  same &= convert<Format::bf16, Format::f32>(u) == narrow(u, rn);
  same &= convert<Format::bf16, Format::f32>(u, {.rounding = rz}) == narrow(u, rz);
  const bool nan = is_nan_f32(u);
  same &= convert<Format::tf32, Format::f32>(u) == (nan ? 0x7FFFE000 : drop_bits(u, 13, rn));
  same &= convert<Format::tf32, Format::f32>(u, {.rounding = rz}) == (nan ? 0x7FFFE000 : drop_bits(u, 13, rz));
  const std::uint32_t away = nan ? u & 0xFFFFE000 : drop_bits(u, 13, Rounding::nearest_away);
  same &= convert<Format::tf32, Format::f32>(u, {.rounding = Rounding::nearest_away}) == away;
  if (!same) FAIL_CHECK("f32 source " << u);
}

TEST_CASE("f32 to fp8, f16, bf16 and tf32: measured on H200") {
  for (std::uint64_t u = 0; u < 1ull << 32; u += 3001) check_f32_source(static_cast<std::uint32_t>(u));
  for (std::uint32_t base : {0u, 0x33800000u, 0x38800000u, 0x3C000000u, 0x43E00000u, 0x47600000u, 0x7F000000u})
    for (std::uint32_t i = 0; i < 0x4000; ++i) check_f32_source(base + i * 0x400 - 0x200);
}

TEST_CASE("f32 to fp8, f16, bf16 and tf32, every source" * doctest::skip()) {
  for (std::uint64_t u = 0; u < 1ull << 32; ++u) check_f32_source(static_cast<std::uint32_t>(u));
}

TEST_CASE("f16 to fp8 and back, all codes: measured on H200") {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto wide = static_cast<std::uint32_t>(convert<Format::f32, Format::f16>(h));
    const std::uint32_t pair = h << 16 | (65535 - h);
    const auto other = static_cast<std::uint32_t>(convert<Format::f32, Format::f16>(65535 - h));
    const std::uint32_t e4m3 = convert_packed<Format::e4m3, Format::f16>(pair, {.satfinite = true});
    REQUIRE(e4m3 == (reference_fp8(wide, 3, false) << 8 | reference_fp8(other, 3, false)));
    const std::uint32_t e5m2 = convert_packed<Format::e5m2, Format::f16>(pair, {.satfinite = true});
    REQUIRE(e5m2 == (reference_fp8(wide, 2, false) << 8 | reference_fp8(other, 2, false)));
  }
  for (std::uint32_t code = 0; code < 256; ++code) {
    // e5m2 is the upper half of an f16; e4m3 to f16 and back is the identity except for the NaN's sign.
    const bool nan = (code & 0x7F) > 0x7C;
    REQUIRE(convert<Format::f16, Format::e5m2>(code) == (nan ? 0x7FFF : code << 8));
    const auto half = static_cast<std::uint32_t>(convert<Format::f16, Format::e4m3>(code));
    const auto back = static_cast<std::uint32_t>(convert<Format::e4m3, Format::f16>(half, {.satfinite = true}));
    REQUIRE(back == ((code & 0x7F) == 0x7F ? 0x7F : code));
    if ((code & 0x7F) == 0x7F) REQUIRE(half == 0x7FFF);
  }
}

TEST_CASE("every 16-bit code survives a trip through f32 and f64") {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7FFF) <= 0x7C00) {
      const std::uint64_t wide = convert<Format::f32, Format::f16>(h);
      REQUIRE(convert<Format::f16, Format::f32>(wide) == h);
      REQUIRE(convert<Format::f16, Format::f64>(convert<Format::f64, Format::f16>(h)) == h);
    }
    REQUIRE(convert<Format::f32, Format::bf16>(h) == h << 16);
    if ((h & 0x7FFF) <= 0x7F80) REQUIRE(convert<Format::bf16, Format::f32>(h << 16) == h);
  }
}

TEST_CASE("modifiers") {
  const auto f32_to_f16 = [](float x, CvtModifiers m) { return convert<Format::f16, Format::f32>(bits_of(x), m); };
  CHECK(f32_to_f16(-2.0f, {.relu = true}) == 0);
  CHECK(f32_to_f16(-0.0f, {.relu = true}) == 0);
  CHECK(f32_to_f16(std::nanf(""), {.relu = true}) == 0x7FFF);
  CHECK(f32_to_f16(1e9f, {.satfinite = true}) == 0x7BFF);
  CHECK(f32_to_f16(7.0f, {.sat = true}) == 0x3C00);
  CHECK(f32_to_f16(-7.0f, {.sat = true}) == 0);
  CHECK(f32_to_f16(std::nanf(""), {.sat = true}) == 0);
  CHECK(f32_to_f16(1e-41f, {.rounding = Rounding::up}) == 1);
  CHECK(f32_to_f16(1e-41f, {.rounding = Rounding::up, .ftz = true}) == 0);
  CHECK(convert_pair<Format::f16>(1.0f, 2.0f) == 0x3C004000);
  CHECK(convert_pair<Format::e2m1>(6.0f, 0.5f, {.satfinite = true}) == 0x71);
  CHECK(convert_pair<Format::e2m3>(7.5f, -0.125f, {.satfinite = true}) == 0x1F21);
  CHECK(convert_packed<Format::f16, Format::e2m1>(0x71) == 0x46003800);
  CHECK(convert_packed<Format::bf16, Format::ue8m0>(0x7F00) == 0x3F800040);
  CHECK(find_convert(Format::f16, Format::f32)(bits_of(1.0f), {}) == 0x3C00);
  CHECK(decode_value(Format::e4m3, 0x38) == 1.0);
}

TEST_CASE("round to integral") {
  const double cases[][5] = {// value, rni, rzi, rmi, rpi
                             {0.5, 0, 0, 0, 1},
                             {1.5, 2, 1, 1, 2},
                             {2.5, 2, 2, 2, 3},
                             {-0.5, 0, 0, -1, 0},
                             {-1.5, -2, -1, -2, -1},
                             {0x1p52 + 1, 0x1p52 + 1, 0x1p52 + 1, 0x1p52 + 1, 0x1p52 + 1},
                             {0.49999999999999994, 0, 0, 0, 1}};
  for (const auto& c : cases) {
    CHECK(round_to_integral(c[0], Rounding::nearest_even) == c[1]);
    CHECK(round_to_integral(c[0], Rounding::toward_zero) == c[2]);
    CHECK(round_to_integral(c[0], Rounding::down) == c[3]);
    CHECK(round_to_integral(c[0], Rounding::up) == c[4]);
  }
  CHECK(std::signbit(round_to_integral(-0.25, Rounding::nearest_even)));
}

TEST_CASE("float to integer clamps") {
  const double nan = std::nan("");
  const auto rz = Rounding::toward_zero;
  CHECK(float_to_integer<std::int32_t>(3e9, rz, false) == std::numeric_limits<std::int32_t>::max());
  CHECK(float_to_integer<std::int32_t>(-3e9, rz, false) == std::numeric_limits<std::int32_t>::min());
  CHECK(float_to_integer<std::uint32_t>(-1.0, rz, false) == 0);
  CHECK(float_to_integer<std::uint32_t>(4294967295.7, rz, true) == 0xFFFFFFFF);
  CHECK(float_to_integer<std::uint8_t>(255.5, Rounding::nearest_even, false) == 255);
  CHECK(float_to_integer<std::int8_t>(-128.4, Rounding::nearest_even, false) == -128);
  CHECK(float_to_integer<std::int64_t>(HUGE_VAL, rz, true) == std::numeric_limits<std::int64_t>::max());
  CHECK(float_to_integer<std::uint64_t>(0x1.fffffep63, rz, false) == 0xFFFFFF0000000000);
  CHECK(float_to_integer<std::int32_t>(nan, rz, false) == 0);
  CHECK(float_to_integer<std::int32_t>(nan, rz, true) == std::numeric_limits<std::int32_t>::min());
  CHECK(float_to_integer<std::uint64_t>(nan, rz, false) == 1ull << 63);
  CHECK(float_to_integer<std::int32_t>(2.5, Rounding::nearest_even, false) == 2);
}

TEST_CASE("integer to float rounds once") {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint64_t r = test::random_bits(2, i) >> (i % 60);
    const auto s = static_cast<std::int64_t>(test::random_bits(3, i)) >> (i % 60);
    const auto rn = Rounding::nearest_even;
    REQUIRE(integer_to_float<Format::f32>(r, rn) == bits_of(static_cast<float>(r)));
    REQUIRE(integer_to_float<Format::f32>(s, rn) == bits_of(static_cast<float>(s)));
    REQUIRE(integer_to_float<Format::f64>(s, rn) == bits_of(static_cast<double>(s)));
    const std::int64_t small = s >> 11;  // 53 bits: a double holds it
    for (Rounding mode : {Rounding::down, Rounding::up, Rounding::toward_zero})
      REQUIRE(integer_to_float<Format::f32>(small, mode) == encode<Format::f32>(static_cast<double>(small), mode));
  }
  CHECK(integer_to_float<Format::f16>(65520, Rounding::nearest_even) == 0x7C00);
  CHECK(integer_to_float<Format::f32>(0, Rounding::down) == 0);
}

// What C++ makes of a value, or of the nearest that To holds, extended to 64 bits.
template <class To, class From>
void check_integers(From value) {
  using Limits = std::numeric_limits<To>;
  constexpr IntegerType kTo{sizeof(To) * 8, std::is_signed_v<To>};
  const Int128 wide = value;
  const To nearest = wide < static_cast<Int128>(Limits::min())   ? Limits::min()
                     : wide > static_cast<Int128>(Limits::max()) ? Limits::max()
                                                                 : static_cast<To>(value);
  REQUIRE(integer_to_integer<false>(value, kTo) == static_cast<std::uint64_t>(static_cast<To>(value)));
  REQUIRE(integer_to_integer<true>(value, kTo) == static_cast<std::uint64_t>(nearest));
}
template <class From>
void check_integers_from(std::uint64_t bits) {
  const auto value = static_cast<From>(bits);
  check_integers<std::int8_t>(value);
  check_integers<std::uint8_t>(value);
  check_integers<std::int16_t>(value);
  check_integers<std::uint16_t>(value);
  check_integers<std::int32_t>(value);
  check_integers<std::uint32_t>(value);
  check_integers<std::int64_t>(value);
  check_integers<std::uint64_t>(value);
}

TEST_CASE("integer to integer") {
  CHECK(integer_to_integer<false>(300, {8, true}) == 44);
  CHECK(integer_to_integer<true>(300, {8, true}) == 127);
  CHECK(integer_to_integer<true>(-1, {8, false}) == 0);
  CHECK(integer_to_integer<false>(200, {8, true}) == ~std::uint64_t{55});
  for (int i = 0; i < 4000; ++i) {
    // Next to a power of two, or any: the ends of all types are among them.
    const std::uint64_t power = std::uint64_t{1} << (i % 64);
    const std::uint64_t bits = i % 4 == 3 ? test::random_bits(41, static_cast<std::uint64_t>(i))
                                          : (i % 4 == 0 ? power : std::uint64_t{0} - power) +
                                                test::random_bits(42, static_cast<std::uint64_t>(i)) % 3 - 1;
    check_integers_from<std::int8_t>(bits);
    check_integers_from<std::uint8_t>(bits);
    check_integers_from<std::int16_t>(bits);
    check_integers_from<std::uint16_t>(bits);
    check_integers_from<std::int32_t>(bits);
    check_integers_from<std::uint32_t>(bits);
    check_integers_from<std::int64_t>(bits);
    check_integers_from<std::uint64_t>(bits);
  }
}

}  // namespace
}  // namespace tessera::emulator::math
