// Planted mistakes in products are named by their cause; random errors and right results are not. The products are
// computed here, without the code that looks for causes.
#include "reference/likely_cause.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reference/product_suspects.h"
#include "reference/random.h"
#include "tests/support/has_text.h"

namespace tessera::reference {
namespace {

using testing::has;

constexpr std::int64_t kMatrices = 2, kRows = 150, kColumns = 140, kK = 528;
constexpr std::int64_t kBlocks = kK / 16;

/// An nvfp4 operand, every code and scale random; padding of scales NaN.
struct Operand {
  Tensor values, scales;

  Operand(std::int64_t rows, std::uint64_t stream)
      : values(DType::u8, {kMatrices, rows, kK / 2}),
        scales(DType::u8, {scale_bytes(ScaleForm::tile, kMatrices, rows, kBlocks)}) {
    const CounterRandom random(3, stream);
    for (std::size_t i = 0; i < values.bytes.size(); ++i)
      values.bytes[i] = static_cast<std::byte>(random.bits(i) & 0xFF);
    std::fill(scales.bytes.begin(), scales.bytes.end(), std::byte{0xFF});
    for (std::int64_t m = 0; m < kMatrices; ++m)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < kBlocks; ++j)
          scales.bytes[static_cast<std::size_t>(scale_offset(ScaleForm::tile, rows, kBlocks, m, r, j))] =
              static_cast<std::byte>(
                  0x20 + random.bits(1 << 20 | static_cast<std::uint64_t>((m * rows + r) * kBlocks + j)) % 40);
  }
  std::int64_t rows() const { return values.shape[1]; }
  OperandSource source() const { return {OperandType::nvfp4, values.view(), scales.bytes, ScaleForm::tile, kK, 0}; }
  double value(std::int64_t m, std::int64_t r, std::int64_t k) const {
    static constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    const auto byte = static_cast<unsigned>(values.bytes[static_cast<std::size_t>((m * rows() + r) * kK / 2 + k / 2)]);
    return kValues[k % 2 == 0 ? byte & 15 : byte >> 4];
  }
  double scale(std::int64_t m, std::int64_t r, std::int64_t j) const {
    const auto code = static_cast<unsigned>(
        scales.bytes[static_cast<std::size_t>(scale_offset(ScaleForm::tile, rows(), kBlocks, m, r, j))]);
    return (1 + (code & 7) / 8.0) * std::exp2(static_cast<int>(code >> 3) - 7);
  }
};

struct Planted {
  Operand a{kRows, 1}, b{kColumns, 2};

  using Product = std::function<double(std::int64_t m, std::int64_t i, std::int64_t j, std::int64_t k)>;
  double sum(std::int64_t m, std::int64_t i, std::int64_t j, const Product& product) const {
    double all = 0;
    for (std::int64_t k = 0; k < kK; ++k) all += product(m, i, j, k);
    return all;
  }
  double right(std::int64_t m, std::int64_t i, std::int64_t j, std::int64_t k) const {
    return a.value(m, i, k) * a.scale(m, i, k / 16) * b.value(m, j, k) * b.scale(m, j, k / 16);
  }
  /// What is said of a product with a mistake, of every 7th element.
  std::string cause(const std::function<double(std::int64_t, std::int64_t, std::int64_t)>& found) const {
    std::vector<Mismatch> wrong;
    const auto terms = [&](std::int64_t m, std::int64_t i, std::int64_t j, std::int64_t k) {
      return right(m, i, j, k);
    };
    for (std::int64_t at = 0; at < kMatrices * kRows * kColumns; at += 7) {
      const std::int64_t m = at / (kRows * kColumns), i = at / kColumns % kRows, j = at % kColumns;
      const double is = found(m, i, j), expected = sum(m, i, j, terms);
      if (!(std::fabs(is - expected) <= 1e-5 * std::fabs(expected))) wrong.push_back({{m, i, j}, is, expected, 0});
    }
    ProductSuspectInputs in;
    in.a = a.source();
    in.b = b.source();
    in.rows = kRows;
    in.columns = kColumns;
    in.steps.step = 256;
    in.steps.chunk = 64;
    in.steps.bits = 4;
    in.steps.tile_a = 128;
    in.steps.tile_b = 64;
    in.finishes.push_back({"", [](double x, double, const Coordinates&) { return x; }});
    in.slack = [](double result, double magnitude) { return 1e-6 * std::fabs(result) + 1e-7 * magnitude; };
    return likely_cause(wrong, product_suspects(in));
  }
  std::string cause_of(const Product& product) const {
    return cause([&](std::int64_t m, std::int64_t i, std::int64_t j) { return sum(m, i, j, product); });
  }
};

}  // namespace

TEST_CASE("likely cause: scales from a wrong place") {
  const Planted p;
  using I = std::int64_t;
  const auto with_scale_of_a = [&](const std::function<double(I m, I i, I block)>& scale) {
    return p.cause_of([&](I m, I i, I j, I k) {
      return p.a.value(m, i, k) * scale(m, i, k / 16) * p.b.value(m, j, k) * p.b.scale(m, j, k / 16);
    });
  };
  has(with_scale_of_a([&](I m, I i, I block) { return p.a.scale(m, i, block / 4 * 4); }),
      "every block of a takes the scale of the first of its four");
  has(with_scale_of_a([&](I m, I i, I block) { return p.a.scale(m, i % 128, block); }),
      "all rows of a take scales of the first tile of 128 rows");
  has(with_scale_of_a([&](I, I i, I block) { return p.a.scale(0, i, block); }),
      "all matrices take the scales of the first one of a");
  has(with_scale_of_a([&](I, I, I) { return 1.0; }), "scales of a do not count");
  has(with_scale_of_a([&](I m, I i, I block) { return (block ^ 3) < kBlocks ? p.a.scale(m, i, block ^ 3) : 0.0; }),
      "the four scales of a in a word are taken in reverse");
  has(with_scale_of_a([&](I m, I i, I block) { return p.a.scale(m, i / 32 * 32 + (i + 8) % 32, block); }),
      "rows of a take the scales of row r + 8 within their 32: of the thread behind in the quad");
  has(p.cause_of([&](I m, I i, I j, I k) {
    const double value = (j ^ 8) < kColumns ? p.b.value(m, j ^ 8, k) : 0.0;
    return p.a.value(m, i, k) * p.a.scale(m, i, k / 16) * value * p.b.scale(m, j, k / 16);
  }),
      "values of b of rows r and r ^ 8 have changed places, their scales have not");
  // The right half of each tile of 128 columns takes the scales of the left one.
  has(p.cause_of([&](I m, I i, I j, I k) {
    return p.a.value(m, i, k) * p.a.scale(m, i, k / 16) * p.b.value(m, j, k) *
           p.b.scale(m, j / 128 * 128 + j % 64, k / 16);
  }),
      "rows of b take the scales of row r % 64 of their 128");
}

TEST_CASE("likely cause: values from a wrong place, parts of k, results in a wrong place") {
  const Planted p;
  using I = std::int64_t;
  has(p.cause_of([&](I m, I i, I j, I k) {
    return p.a.value(m, i, k) * p.a.scale(m, i, k / 16) * p.b.value(m, j, k ^ 1) * p.b.scale(m, j, k / 16);
  }),
      "nibbles of one operand (a or b) are exchanged");
  has(p.cause_of([&](I m, I i, I j, I k) { return k % 256 < 64 ? p.right(m, i, j, k) : 0; }),
      "of each 256 of k only the first 64 count");
  has(p.cause_of([&](I m, I i, I j, I k) { return k >= 512 ? p.right(m, i, j, k) : 0; }),
      "only the last step of k counts");
  const auto terms = [&](I m, I i, I j, I k) { return p.right(m, i, j, k); };
  has(p.cause([&](I m, I i, I j) { return p.sum(m, i ^ 1, j, terms); }), "row c of d holds what belongs to row c ^ 1");
  has(p.cause([&](I m, I i, I j) { return p.sum(m, i, j / 8 * 8 + (j + 2) % 8, terms); }),
      "column c of d holds what belongs to column c + 2 within its eight: of the thread behind in the quad");
  // 8 rows of B 512 bytes apart, where its tile of 64 rows has 1,024: a swizzled row lies 128 bytes from the next one.
  has(p.cause_of([&](I m, I i, I j, I k) {
    const I row = j % 64, byte = k % 256 / 2;
    const I address = row / 8 * 512 + row % 8 * 128 + byte;
    const I swizzled = address ^ (address >> 7 & 7) << 4;
    const I found = swizzled / 128, found_unit = swizzled / 16 % 8 ^ found % 8;
    const I of_k = k / 256 * 256 + (found_unit * 16 + swizzled % 16) * 2 + k % 2;
    const bool exists = j / 64 * 64 + found < kColumns && of_k < kK;
    return p.a.value(m, i, k) * p.a.scale(m, i, k / 16) * (exists ? p.b.value(m, j / 64 * 64 + found, of_k) : 0) *
           p.b.scale(m, j, k / 16);
  }),
      "groups of 8 rows of b are read 512 bytes apart");
}

TEST_CASE("likely cause: NaN codes behind k, and errors without a cause") {
  const Planted p;
  using I = std::int64_t;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  has(p.cause([&](I, I, I) { return kNan; }), "the bytes of scales behind k are not cleared: k ends at block 1");
  const auto terms = [&](I m, I i, I j, I k) { return p.right(m, i, j, k); };
  const CounterRandom random(9, 0);
  CHECK(p.cause([&](I m, I i, I j) {
           return p.sum(m, i, j, terms) *
                  (1 + random.normal(static_cast<std::uint64_t>((m * kRows + i) * kColumns + j)));
         }).empty());
  CHECK(p.cause([&](I m, I i, I j) { return p.sum(m, i, j, terms); }).empty());
}

}  // namespace tessera::reference
