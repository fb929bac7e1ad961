// The reference of quantize_blocks: factors at powers of two and beside them, what becomes of what no factor fits, and
// causes that it names.
#include "reference/quantize_blocks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "reference/quantize.h"
#include "reference/random.h"

using namespace tessera;
using namespace tessera::reference;
namespace quantize_blocks_reference_test {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor random_rows(std::int64_t l, std::int64_t rows, std::int64_t k) {
  Tensor x(DType::f32, {l, rows, k});
  fill(x, Fill::normal, 7, 0);
  return x;
}

}  // namespace

TEST_CASE("quantize_blocks: the least power of two under which nothing overflows, and no factor below 1e-4 / 448") {
  for (int exponent = -10; exponent < 120; exponent += 13) {
    const float power = std::ldexp(1.0F, exponent), most = 448 * power;
    CHECK(block_factor(most, ScaleValues::pow2) == power);
    CHECK(block_factor(std::nextafter(most, kInfinity), ScaleValues::pow2) == 2 * power);
    CHECK(block_factor(std::nextafter(most, 0.0F), ScaleValues::pow2) == power);
    CHECK(block_factor(most, ScaleValues::any) == power);
  }
  CHECK(block_factor(0, ScaleValues::any) == 1e-4F / 448);
  CHECK(block_factor(0, ScaleValues::pow2) == std::ldexp(1.0F, -22));
  CHECK(block_factor(kInfinity, ScaleValues::any) == std::numeric_limits<float>::max() / 448);
}

TEST_CASE("quantize_blocks: values times factors are x within half a step of e4m3; blocks end where x does") {
  for (const ScaleBlock block : {ScaleBlock::square, ScaleBlock::of_row})
    for (const ScaleValues numbers : {ScaleValues::any, ScaleValues::pow2}) {
      const Tensor x = random_rows(2, 131, 144);
      const QuantizedBlocks made = quantize_blocks(x.view(), {block, numbers});
      const std::int64_t down = block == ScaleBlock::square ? 2 : 131;
      REQUIRE(made.factors.shape == std::vector<std::int64_t>{2, down, 2});
      for (std::int64_t i = 0; i < x.elements(); ++i) {
        const std::int64_t row = i / 144 % 131, of = block == ScaleBlock::square ? row / 128 : row;
        const double factor = made.factors.at((i / 144 / 131 * down + of) * 2 + i % 144 / 128);
        const double error = std::fabs(made.values.at(i) * factor - x.at(i));
        // Four bits of a normal number, and 2^-10 of a subnormal one.
        CHECK(error <= std::max(std::fabs(x.at(i)) / 16, factor / 1024) * (1 + 1e-6));
      }
    }
}

TEST_CASE("quantize_blocks: infinity saturates, NaN stays and does not count") {
  Tensor x = random_rows(1, 128, 128);
  const float factor = static_cast<float>(quantize_blocks(x.view(), {}).factors.at(0));
  x.set(5, std::nan(""));
  CHECK(quantize_blocks(x.view(), {}).factors.at(0) == factor);
  CHECK(std::isnan(quantize_blocks(x.view(), {}).values.at(5)));
  x.set(9, -kInfinity);
  CHECK(quantize_blocks(x.view(), {}).values.at(9) == -448);
}

TEST_CASE("quantize_blocks: wrong results are told with their cause") {
  const Tensor x = random_rows(2, 300, 400);
  const QuantizeBlocksRule facts;
  const QuantizedBlocks right = quantize_blocks(x.view(), facts);
  CHECK(check_quantize_blocks(x.view(), facts, right.values.view(), right.factors.view()).pass);
  const auto cause_of = [&](const Tensor& values, const Tensor& factors) {
    const Comparison result = check_quantize_blocks(x.view(), facts, values.view(), factors.view());
    CHECK(!result.pass);
    std::string text;
    for (const std::string& problem : result.problems) text += problem + "\n";
    return text;
  };
  const QuantizedBlocks powers = quantize_blocks(x.view(), {ScaleBlock::square, ScaleValues::pow2});
  CHECK(cause_of(powers.values, powers.factors).find("likely cause: factors are powers of two") != std::string::npos);
  const QuantizedBlocks rows = quantize_blocks(x.view(), {ScaleBlock::of_row, ScaleValues::any});
  CHECK(cause_of(rows.values, right.factors).find("likely cause: a factor is that of one row, not of 128") !=
        std::string::npos);
  Tensor moved = right.factors;
  for (std::int64_t i = 0; i < moved.elements(); ++i)
    if (i % 4 < 3) moved.set(i, right.factors.at(i + 1));
  CHECK(cause_of(right.values, moved).find("likely cause: the factor of the next 128 of k") != std::string::npos);
}

}  // namespace quantize_blocks_reference_test
