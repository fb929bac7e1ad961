// The verdict over products that leave in a block-scaled format.
#include "reference/gemm_gated.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/poison.h"
#include "reference/quantize.h"

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
