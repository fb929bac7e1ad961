// Formats against first principles: the list of all values of a narrow format, and a search in it, decide what every
// rounding direction must give.
#include "emulator/math/float_format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "tests/emulator_math/random.h"

namespace tessera::emulator::math {
namespace {

// Value of a code by the textbook formula, in long double.
long double value_of(const FormatInfo& f, std::uint64_t code) {
  const auto fraction = static_cast<long double>(code & ((1ull << f.fraction_bits) - 1));
  const auto field = static_cast<int>(code >> f.fraction_bits & ((1ull << f.exponent_bits) - 1));
  const long double scale = std::ldexp(1.0L, f.fraction_bits);
  return field == 0 ? std::ldexp(fraction / scale, 1 - f.bias) : std::ldexp(1 + fraction / scale, field - f.bias);
}

// All nonnegative finite values of the format, in order of their codes.
std::vector<long double> values_of(const FormatInfo& f) {
  std::vector<long double> values;
  for (std::uint64_t code = 0; code <= max_finite_code(f); ++code) values.push_back(value_of(f, code));
  return values;
}

std::uint64_t expected_code(const FormatInfo& f, const std::vector<long double>& values, double x, Rounding mode) {
  const long double magnitude = std::fabs(static_cast<long double>(x));
  const bool negative = std::signbit(x);
  const std::uint64_t sign = f.has_sign && negative ? 1ull << (f.exponent_bits + f.fraction_bits) : 0;
  // The value after the largest finite one decides when nearest overflows.
  const std::uint64_t top = values.size() - 1;
  const long double beyond = 2 * values[top] - values[top - 1];
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  const auto high = static_cast<std::uint64_t>(above - values.begin());
  const long double high_value = high <= top ? values[high] : std::max(beyond, magnitude);
  if (high <= top && high_value == magnitude) return sign | high;
  const std::uint64_t low = high - 1;
  const long double middle = (values[low] + (high <= top ? high_value : beyond)) / 2;
  bool up = false;
  if (mode == Rounding::nearest_even) up = magnitude > middle || (magnitude == middle && low % 2 == 1);
  if (mode == Rounding::nearest_away) up = magnitude >= middle;
  if (mode == Rounding::down) up = negative;
  if (mode == Rounding::up) up = !negative;
  if (!up) return sign | low;
  if (high <= top) return sign | high;
  if (f.specials == Specials::ieee) return sign | (top + 1);
  return sign | (f.specials == Specials::none ? top : f.canonical_nan);
}

template <Format F>
void check_format() {
  constexpr FormatInfo f = info_of(F);
  CAPTURE(static_cast<int>(F));
  const std::vector<long double> values = values_of(f);
  for (std::uint64_t code = 0; code < values.size(); ++code) {
    const std::uint64_t in_container = code << container_shift(F);
    REQUIRE(static_cast<long double>(decode<F>(in_container)) == values[code]);
    if (f.has_sign) {
      const std::uint64_t negative = in_container | 1ull << (f.exponent_bits + f.fraction_bits + container_shift(F));
      REQUIRE(static_cast<long double>(decode<F>(negative)) == -values[code]);
      REQUIRE(std::signbit(decode<F>(negative)));
    }
  }
  const auto probe = [&](double x) {
    for (Rounding mode :
         {Rounding::nearest_even, Rounding::toward_zero, Rounding::down, Rounding::up, Rounding::nearest_away}) {
      for (double v : {x, -x}) {
        const std::uint64_t want = expected_code(f, values, v, mode) << container_shift(F);
        const std::uint64_t got = encode<F>(v, mode);
        if (got != want) {
          CAPTURE(v);
          CAPTURE(static_cast<int>(mode));
          REQUIRE(got == want);
        }
      }
    }
  };
  const std::size_t step = values.size() > 4096 ? 37 : 1;
  for (std::size_t i = 0; i < values.size(); i += step) {
    const auto exact = static_cast<double>(values[i]);
    const double next = i + 1 < values.size() ? static_cast<double>(values[i + 1]) : 2 * exact;
    const double middle = (exact + next) / 2;
    for (double x : {exact, middle}) {
      probe(x);
      probe(std::nextafter(x, 1e300));
      if (x > 0) probe(std::nextafter(x, 0.0));
    }
  }
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const std::uint64_t r = test::random_bits(1, i);
    probe(std::ldexp(1.0 + static_cast<double>(r & 0xFFFFF) / 0x100000,
                     static_cast<int>((r >> 40) % (2u * static_cast<unsigned>(f.bias) + 20)) - f.bias - 15));
  }
}

TEST_CASE("every code of every narrow format decodes to its value and every direction rounds to the right neighbour") {
  check_format<Format::f16>();
  check_format<Format::bf16>();
  check_format<Format::tf32>();
  check_format<Format::e5m2>();
  check_format<Format::e4m3>();
  check_format<Format::e3m2>();
  check_format<Format::e2m3>();
  check_format<Format::e2m1>();
}

TEST_CASE("what lies past the largest value") {
  const double inf = HUGE_VAL;
  const double nan = std::nan("");
  CHECK(encode<Format::f16>(inf, Rounding::nearest_even) == 0x7C00);
  CHECK(encode<Format::f16>(-inf, Rounding::nearest_even) == 0xFC00);
  CHECK(encode<Format::f16>(65520.0, Rounding::nearest_even) == 0x7C00);
  CHECK(encode<Format::f16>(65519.9, Rounding::nearest_even) == 0x7BFF);
  CHECK(encode<Format::f16>(1e9, Rounding::toward_zero) == 0x7BFF);
  CHECK(encode<Format::f16>(1e9, Rounding::nearest_even, true) == 0x7BFF);
  CHECK(encode<Format::f16>(-inf, Rounding::nearest_even, true) == 0xFBFF);
  CHECK(encode<Format::f16>(nan, Rounding::nearest_even) == 0x7FFF);
  CHECK(encode<Format::tf32>(nan, Rounding::nearest_even) == 0x7FFFE000);
  CHECK(encode<Format::e4m3>(1e9, Rounding::nearest_even, true) == 0x7E);
  CHECK(encode<Format::e4m3>(-inf, Rounding::nearest_even, true) == 0xFE);
  CHECK(encode<Format::e5m2>(-inf, Rounding::nearest_even, true) == 0xFB);
  CHECK(encode<Format::e4m3>(nan, Rounding::nearest_even, true) == 0x7F);
  CHECK(encode<Format::e2m1>(nan, Rounding::nearest_even, true) == 0x7);
  CHECK(encode<Format::e2m3>(-inf, Rounding::nearest_even, true) == 0x3F);
  CHECK(encode<Format::e3m2>(100.0, Rounding::nearest_even, true) == 0x1F);
}

TEST_CASE("the decoder knows the specials") {
  CHECK(std::isnan(decode<Format::e4m3>(0xFF)));
  CHECK(decode<Format::e4m3>(0x7E) == 448.0);
  CHECK(std::isinf(decode<Format::e5m2>(0xFC)));
  CHECK(std::isnan(decode<Format::e5m2>(0x7D)));
  CHECK(decode<Format::e2m1>(0xF) == -6.0);
  CHECK(decode<Format::e3m2>(0x1F) == 28.0);
  CHECK(decode<Format::e2m3>(0x1F) == 7.5);
  CHECK(decode<Format::ue4m3>(0xFE) == 448.0);
  CHECK(decode<Format::ue8m0>(0) == std::ldexp(1.0, -127));
  CHECK(decode<Format::ue8m0>(254) == std::ldexp(1.0, 127));
  CHECK(std::isnan(decode<Format::ue8m0>(255)));
}

TEST_CASE("ue8m0 rounds the exponent") {
  CHECK(encode<Format::ue8m0>(1.0, Rounding::up) == 127);
  CHECK(encode<Format::ue8m0>(-1.5, Rounding::up) == 128);
  CHECK(encode<Format::ue8m0>(1.5, Rounding::toward_zero) == 127);
  CHECK(encode<Format::ue8m0>(0.0, Rounding::up) == 0);
  CHECK(encode<Format::ue8m0>(std::ldexp(1.0, -127), Rounding::up) == 0);
  CHECK(encode<Format::ue8m0>(std::ldexp(1.1, -127), Rounding::up) == 1);
  CHECK(encode<Format::ue8m0>(std::ldexp(1.0, -140), Rounding::up) == 0);
  CHECK(encode<Format::ue8m0>(std::ldexp(1.9, 127), Rounding::up) == 255);
  CHECK(encode<Format::ue8m0>(std::ldexp(1.9, 127), Rounding::up, true) == 254);
  CHECK(encode<Format::ue8m0>(HUGE_VAL, Rounding::toward_zero, true) == 254);
  CHECK(encode<Format::ue8m0>(std::nan(""), Rounding::up, true) == 255);
}

}  // namespace
}  // namespace tessera::emulator::math
