// The polynomial of spec/exponential.h, evaluated as the device does it, against 2^x in double precision.
#include "spec/exponential.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace {

// What PolynomialExp2 does, step by step.
float exp2_of(float x) {
  if (!(x > tessera::kExp2Lowest) && !std::isnan(x)) x = tessera::kExp2Lowest;
  const float shifted = x + tessera::kExp2Round;
  const float f = x - (shifted - tessera::kExp2Round);
  float p = tessera::exp2_coefficient(5);
  for (int i = 3; i >= 0; --i) p = std::fma(p, f, tessera::exp2_coefficient(i + 1));
  p = std::fma(p, f, 1.0f);
  return p * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
}

}  // namespace

TEST_CASE("2^x by a polynomial is as good as ex2.approx") {
  double worst = 0;
  for (const float sign : {1.0f, -1.0f})
    for (std::uint32_t bits = std::bit_cast<std::uint32_t>(0x1p-30f); bits <= std::bit_cast<std::uint32_t>(0.5f);
         bits += 5) {
      const float x = sign * std::bit_cast<float>(bits);
      worst = std::max(worst, std::abs(static_cast<double>(exp2_of(x)) / std::exp2(static_cast<double>(x)) - 1));
    }
  MESSAGE("largest relative error 2^", std::log2(worst));
  CHECK(worst < 0x1p-22);
  bool is_exact = true;
  for (int n = -126; n <= 8; ++n) is_exact = is_exact && exp2_of(static_cast<float>(n)) == std::ldexp(1.0f, n);
  CHECK(is_exact);
  CHECK(exp2_of(-INFINITY) == 0.0f);
  CHECK(exp2_of(-200.5f) == 0.0f);
  CHECK(std::isnan(exp2_of(NAN)));
}
