// What an H200 answered about matrix accumulation, as single rows: width, cut, order, where C joins, extremes.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

#include "emulator/math/mma_step.h"
#include "emulator/math/mma_tile.h"

namespace tessera::emulator::math {
namespace {

std::uint32_t bf16(double value) {
  return static_cast<std::uint32_t>(encode<Format::bf16>(value, Rounding::nearest_even));
}

struct Product {
  double a;
  double b;
};

// sum of the products (bf16, padded with zeros to one step of 16) plus c, by both implementations.
float bf16_step(const std::vector<Product>& products, float c, std::size_t at = 0) {
  std::array<std::uint32_t, 16> a{};
  std::array<std::uint32_t, 16> b{};
  MmaOperand row(1, 16);
  MmaOperand column(1, 16);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::size_t k = (i * 5 + at) % 16;
    a[k] = bf16(products[i].a);
    b[k] = bf16(products[i].b);
    row.set(Format::bf16, a[k], 0, static_cast<int>(k));
    column.set(Format::bf16, b[k], 0, static_cast<int>(k));
  }
  std::uint32_t d = bits_of(c);
  mma_tile(mma_paths::kHopperF32, row, column, &d, 1);
  const std::uint32_t plain = mma_output(mma_paths::kHopperF32, Format::bf16, Format::bf16, a, b, bits_of(c));
  REQUIRE(d == plain);
  return float_of(d);
}

float two_to(int e) { return std::ldexp(1.0f, e); }

TEST_CASE("width: X - X + X * 2^-j survives to j = 25, wherever the terms stand") {
  for (std::size_t at = 0; at < 16; ++at) {
    for (double x : {1.0, 1.5}) {
      CHECK(bf16_step({{x, x}, {-x, x}, {x * two_to(-25), 1}}, 0, at) ==
            static_cast<float>(std::floor(x)) * two_to(-25));
      CHECK(bf16_step({{x, x}, {-x, x}, {two_to(-26), 1}}, 0, at) == 0.0f);
    }
    CHECK(bf16_step({{-1, 1}, {two_to(-25), 1}}, 1.0f, at) == two_to(-25));
    CHECK(bf16_step({{-1, 1}, {two_to(-26), 1}}, 1.0f, at) == 0.0f);
    CHECK(bf16_step({{1, 1}, {-1, 1}}, two_to(-25), at) == two_to(-25));
  }
}

TEST_CASE("every term is cut toward zero alone") {
  const double unit = two_to(-25);
  CHECK(bf16_step({{1, 1}, {-1, 1}, {1.5 * unit, 1}}, 0) == two_to(-25));
  CHECK(bf16_step({{1, 1}, {-1, 1}, {-1.5 * unit, 1}}, 0) == -two_to(-25));
  CHECK(bf16_step({{1, 1}, {-1, 1}, {0.75 * unit, 1}, {0.75 * unit, 1}}, 0) == 0.0f);
}

TEST_CASE("extremes") {
  const double big = std::ldexp(1.0, 100);
  CHECK(bf16_step({{two_to(127), 1}, {two_to(127), 1}, {-two_to(127), 1}}, 0) == two_to(127));
  CHECK(bf16_step({{big, big}, {-big, big}, {two_to(120), 1}}, 0) == 0.0f);
  CHECK(std::isinf(bf16_step({{big, big}}, 0)));
  CHECK(bits_of(bf16_step({{-0.0, 1}, {-0.0, 1}}, -0.0f)) == 0);
  // 16 * 2^-153 = 2^-149 with C = 0; C = 2^-149 counts with exponent -126, which loses 16 * 2^-152.
  const std::vector<Product> tiny(16, {two_to(-77), two_to(-76)});
  CHECK(bf16_step(tiny, 0.0f) == two_to(-149));
  const std::vector<Product> larger(16, {two_to(-76), two_to(-76)});
  CHECK(bf16_step(larger, two_to(-149)) == two_to(-149));
}

TEST_CASE("NaN, infinity") {
  const double inf = HUGE_VAL;
  CHECK(bits_of(bf16_step({{inf, 0}}, 0)) == kCanonicalNanF32);
  CHECK(bits_of(bf16_step({{inf, 1}, {-inf, 1}}, 0)) == kCanonicalNanF32);
  CHECK(bits_of(bf16_step({{inf, 1}}, -HUGE_VALF)) == kCanonicalNanF32);
  CHECK(bf16_step({{inf, -1}, {3, 4}}, 1.0f) == -HUGE_VALF);
  CHECK(bits_of(bf16_step({{1, 1}}, float_of(0xFFC00001))) == kCanonicalNanF32);
}

TEST_CASE("tf32: the low 13 bits of a container are not read, not even to tell NaN from infinity") {
  const std::array<std::uint32_t, 8> a{0x7F800001, 0, 0, 0, 0, 0, 0, 0};
  const std::array<std::uint32_t, 8> b{0x3F801FFF, 0, 0, 0, 0, 0, 0, 0};
  CHECK(mma_output(mma_paths::kHopperTf32, Format::tf32, Format::tf32, a, b, 0) == kInfinityF32);
}

TEST_CASE("fp8 wgmma keeps 13 bits, of C alone too; fp8 mma.sync adds C last") {
  std::array<std::uint32_t, 32> a{};
  std::array<std::uint32_t, 32> b{};
  const std::uint32_t c = bits_of(1.0f + two_to(-14));
  CHECK(mma_output(mma_paths::kHopperFp8, Format::e4m3, Format::e4m3, a, b, c) == bits_of(1.0f));
  CHECK(mma_output(mma_paths::kWidenedFp8, Format::e4m3, Format::e4m3, a, b, c) == c);
  a[0] = b[0] = 0x38;  // 1 * 1
  const float last = 1.0f + two_to(24);
  CHECK(mma_output(mma_paths::kWidenedFp8, Format::e4m3, Format::e4m3, a, b, bits_of(two_to(24))) == bits_of(last));
}

TEST_CASE("f16 accumulators round to the nearest even") {
  std::array<std::uint32_t, 16> a{};
  std::array<std::uint32_t, 16> b{};
  a[3] = 0x3C00;  // 1
  b[3] = 0x1000;  // 2^-11: half a unit
  CHECK(mma_output(mma_paths::kHopperF16, Format::f16, Format::f16, a, b, 0x3C00) == 0x3C00);
  CHECK(mma_output(mma_paths::kHopperF16, Format::f16, Format::f16, a, b, 0x3C01) == 0x3C02);
  a[3] = b[3] = 0x7BFF;
  CHECK(mma_output(mma_paths::kHopperF16, Format::f16, Format::f16, a, b, 0) == 0x7C00);
}

}  // namespace
}  // namespace tessera::emulator::math
