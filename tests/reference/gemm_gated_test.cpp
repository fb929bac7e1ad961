// The verdict over products with a gate, and over those that leave in a block-scaled format.
#include "reference/gemm_gated.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/poison.h"
#include "reference/quantize.h"
#include "tests/support/has_text.h"

using namespace tessera;
using namespace tessera::reference;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// a [1, rows, 2] times b [1, columns, 2], small whole numbers, as quantize makes them.
struct Product {
  Tensor a, b, d;
  std::vector<std::byte> scales;
  BlockFormat format;

  Product(BlockFormat of, std::int64_t rows, std::int64_t columns)
      : a(DType::f64, {1, rows, 2}),
        b(DType::f64, {1, columns, 2}),
        d(DType::u8, {1, rows, columns * value_bits(of) / 8}),
        format(of) {
    for (std::int64_t i = 0; i < 2 * rows; ++i) a.set(i, static_cast<double>(i * 7 % 11 - 5));
    for (std::int64_t i = 0; i < 2 * columns; ++i) b.set(i, static_cast<double>(i * 5 % 9 - 4));
  }

  void store() {
    const std::int64_t rows = a.shape[1], columns = b.shape[1];
    Tensor x(DType::f32, {1, rows, columns});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        x.set(r * columns + c, a.at(2 * r) * b.at(2 * c) + a.at(2 * r + 1) * b.at(2 * c + 1));
    const Quantized q = quantize(x.view(), {format, ScaleForm::tile, ScaleRounding::up, 1});
    std::memcpy(d.bytes.data(), q.values.data(), q.values.size());
    scales.resize(q.scales.size());
    std::memcpy(scales.data(), q.scales.data(), q.scales.size());
  }

  Comparison verdict(std::int64_t max_multiply_adds = std::int64_t{1} << 30) const {
    GatedInputs in{.product = {a.view(), b.view(), {}, {}}, .up = {}, .check = {}};
    in.check.max_multiply_adds = max_multiply_adds;
    in.check.jobs = 1;
    return check_quantized_product(in, format, 1, d.view(), scales);
  }
};

}  // namespace

TEST_CASE("gates: activations and limits, by their formulas") {
  GemmCheck check;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(gated_value(check, 1.5, -2) == doctest::Approx(1.5 * sigmoid(1.5) * -2));
  check.facts.gate_activation = GateActivation::gelu;
  CHECK(gated_value(check, 1.5, -2) == doctest::Approx(0.75 * (1 + std::erf(1.5 / std::sqrt(2.0))) * -2));
  // gpt-oss: both are clamped, then up is one more; V4: the limit of 10 with silu.
  check.facts.gate_activation = GateActivation::gpt_oss;
  check.facts.gate_limit = 7;
  CHECK(gated_value(check, 1.5, -2) == doctest::Approx(-1.5 * sigmoid(1.702 * 1.5)));
  CHECK(gated_value(check, 9, 20) == doctest::Approx(7 * sigmoid(1.702 * 7) * 8));
  CHECK(gated_value(check, -9, -20) == doctest::Approx(-9 * sigmoid(1.702 * -9) * -6));
  CHECK(std::isnan(gated_value(check, kNan, 1)));
  CHECK(std::isnan(gated_value(check, 1, kNan)));
  check.facts.gate_activation = GateActivation::silu;
  check.facts.gate_limit = 10;
  CHECK(gated_value(check, kInfinity, -kInfinity) == doctest::Approx(10 * sigmoid(10) * -10));
}

// An fp32 computation of what the kernel computes is within the bound; one with another constant is not.
TEST_CASE("gates: the verdict takes fp32's roundings and no other number") {
  constexpr std::int64_t kRows = 5, kColumns = 16;
  Tensor a(DType::f32, {1, kRows, 1}), b(DType::f32, {1, 2 * kColumns, 1}), bias(DType::f32, {2 * kColumns});
  for (std::int64_t i = 0; i < kRows; ++i) a.set(i, 0.25 * static_cast<double>(i - 2));
  for (std::int64_t i = 0; i < 2 * kColumns; ++i) {
    b.set(i, 0.5 * static_cast<double>(i * 5 % 13 - 6));
    bias.set(i, 0.75 * static_cast<double>(i * 7 % 11 - 5));
  }
  GemmCheck check;
  check.facts.gate = Gate::interleaved;
  check.facts.interleave = 8;
  check.facts.gate_activation = GateActivation::gpt_oss;
  check.facts.gate_limit = 3;
  check.sums = TensorSums{};
  const auto verdict = [&](float constant) {
    Tensor d(DType::f32, {1, kRows, kColumns});
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
      const std::int64_t row = i / kColumns, of_gate = i % kColumns / 8 * 16 + i % kColumns % 8;
      const auto value = [&](std::int64_t of) { return static_cast<float>(a.at(row) * b.at(of) + bias.at(of)); };
      const float gate = std::min(value(of_gate), 3.0F), up = std::clamp(value(of_gate + 8), -3.0F, 3.0F);
      d.set(i, static_cast<double>(gate / (1 + std::exp(-constant * gate)) * (up + 1)));
    }
    return check_plain_or_gated({a.view(), b.view(), {}, bias.view()}, d.view(), check);
  };
  CHECK(verdict(1.702F).pass);
  CHECK_FALSE(verdict(1.7F).pass);
}

// Sums of 8-bit numbers err by more than a limit, but what is clamped errs by nothing.
TEST_CASE("gates: behind a limit, and far below, a sum's error does not count") {
  constexpr std::int64_t kRows = 4, kColumns = 16, kDepth = 512;
  Tensor a(DType::e4m3, {1, kRows, kDepth}), b(DType::e4m3, {1, 2 * kColumns, kDepth});
  for (std::int64_t i = 0; i < kRows * kDepth; ++i) a.set(i, 8);
  for (std::int64_t i = 0; i < 2 * kColumns * kDepth; ++i) b.set(i, i / kDepth == 3 ? -8 : 8);  // column 3's gate
  GemmCheck check;
  check.facts.gate = Gate::interleaved;
  check.facts.interleave = 8;
  check.facts.gate_limit = 7;
  for (const GateActivation gate : {GateActivation::silu, GateActivation::gpt_oss, GateActivation::gelu_tanh}) {
    check.facts.gate_activation = gate;
    const auto verdict = [&](double factor, double far_below) {
      Tensor d(DType::f32, {1, kRows, kColumns});
      for (std::int64_t i = 0; i < kRows * kColumns; ++i)
        d.set(i, i % kColumns == 3 ? far_below : factor * gated_value(check, 1e4, 1e4));
      return check_plain_or_gated({a.view(), b.view(), {}, {}}, d.view(), check);
    };
    const Comparison right = verdict(1, 0);
    CHECK(right.pass);
    CHECK(right.rel_bound < 1e-2);
    CHECK_FALSE(verdict(1.05, 0).pass);
    // tanh.approx errs by so much of its argument.
    if (gate != GateActivation::gelu_tanh) CHECK_FALSE(verdict(1, 0.5).pass);
  }
}

TEST_CASE("quantised products: rows that were never written are found where rows are sampled") {
  for (const BlockFormat format : {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3}) {
    CAPTURE(value_bits(format));
    Product p(format, 400, 64);
    p.store();
    constexpr std::int64_t kFew = 1;
    const std::int64_t of_row = p.d.shape[2];
    const Comparison right = p.verdict(kFew);
    CHECK(right.pass);
    REQUIRE(right.rows_checked < 20);
    std::fill_n(p.d.bytes.begin() + 333 * of_row, of_row, std::byte{kPoisonByte});
    CHECK(!p.verdict(kFew).pass);
    p.store();
    std::fill_n(p.d.bytes.begin() + 77 * of_row, 8, std::byte{kPoisonByte});
    CHECK(!p.verdict(kFew).pass);
    p.store();
    const std::int64_t blocks = 64 / block_elements(format);
    p.scales[static_cast<std::size_t>(scale_offset(ScaleForm::tile, 400, blocks, 0, 211, 1))] = std::byte{kPoisonByte};
    CHECK(!p.verdict(kFew).pass);
  }
}

TEST_CASE("quantised products: columns in the place of others are named") {
  for (const BlockFormat format : {BlockFormat::nvfp4, BlockFormat::mxfp8_e4m3}) {
    // Each block's largest value stays in it, and its scale is right.
    const auto problems_of = [&](auto from) {
      Product product(format, 6, 64);
      product.store();
      CHECK(product.verdict().pass);
      const Tensor right = product.d;
      const std::int64_t bits = value_bits(format), of_row = 64 * bits / 8;
      for (std::int64_t row = 0; row < 6; ++row)
        for (std::int64_t column = 0; column < 64; ++column) {
          const auto at = [&](std::int64_t c) { return static_cast<std::size_t>(row * of_row + c * bits / 8); };
          const int taken = static_cast<int>(from(column) * bits % 8), put = static_cast<int>(column * bits % 8);
          const unsigned mask = (1U << bits) - 1;
          const unsigned value = std::to_integer<unsigned>(right.bytes[at(from(column))]) >> taken & mask;
          std::byte& byte = product.d.bytes[at(column)];
          byte = static_cast<std::byte>((std::to_integer<unsigned>(byte) & ~(mask << put)) | value << put);
        }
      const Comparison result = product.verdict();
      CHECK_FALSE(result.pass);
      return result.problems;
    };
    testing::has(
        problems_of([](std::int64_t c) { return c / 8 * 8 + (c + 2) % 8; }).at(1),
        "likely cause: columns of d are rotated within each eight: column c holds what belongs to c + 2: of another "
        "thread in the quad");
    testing::has(problems_of([](std::int64_t c) { return c ^ 1; }).at(1),
                 "likely cause: column c of d holds what belongs to column c ^ 1");
    // Another row's numbers are none of these.
    Product product(format, 6, 64);
    product.store();
    std::rotate(product.d.bytes.begin(), product.d.bytes.begin() + 64 * value_bits(format) / 8, product.d.bytes.end());
    for (const std::string& problem : product.verdict().problems)
      CHECK(problem.find("likely cause") == std::string::npos);
  }
}

TEST_CASE("quantised products: NaN and infinity are right where quantize makes them of the same sums") {
  for (const BlockFormat format :
       {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3, BlockFormat::mxfp8_e5m2}) {
    CAPTURE(value_bits(format));
    Product p(format, 4, 64);
    p.a.set(0, kNan);       // row 0
    p.a.set(2, kInfinity);  // row 1: infinities of both signs, NaN where b is 0
    p.b.set(2 * 37, kNan);  // column 37
    p.store();
    CHECK(p.verdict().pass);
    // Another code in the place of a NaN, of an infinity, and beside them.
    for (const std::int64_t place : {2 * 64 + 37, 64 + 3, 2 * 64 + 36}) {
      const auto at = static_cast<std::size_t>(place * value_bits(format) / 8);
      p.d.bytes[at] ^= std::byte{0x66};
      CHECK(!p.verdict().pass);
      p.d.bytes[at] ^= std::byte{0x66};
    }
    // A scale that is another one.
    p.scales[static_cast<std::size_t>(scale_offset(ScaleForm::tile, 4, 64 / block_elements(format), 0, 1, 0))] ^=
        std::byte{1};
    CHECK(!p.verdict().pass);
  }
}
