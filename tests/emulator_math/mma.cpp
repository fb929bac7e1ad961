// The fast tile kernel against the plain model, bit for bit, on data chosen to hurt; the plain model against rows that
// an H200 showed.
#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "emulator/math/mma_step.h"
#include "emulator/math/mma_tile.h"
#include "tests/emulator_math/mma_data.h"

namespace tessera::emulator::math {
namespace {

using test::Data;
using test::kAllData;

struct Case {
  MmaPath path;
  Format a;
  Format b;
  int k;
  bool scaled = false;
};
const Case kCases[] = {
    {mma_paths::kHopperF32, Format::bf16, Format::bf16, 16},
    {mma_paths::kHopperF32, Format::f16, Format::f16, 32},
    {mma_paths::kHopperF16, Format::f16, Format::f16, 16},
    {mma_paths::kHopperK8, Format::f16, Format::f16, 8},
    {mma_paths::kHopperTf32, Format::tf32, Format::tf32, 8},
    {mma_paths::kHopperTf32K4, Format::tf32, Format::tf32, 4},
    {mma_paths::kHopperFp8, Format::e4m3, Format::e4m3, 32},
    {mma_paths::kHopperFp8, Format::e4m3, Format::e5m2, 64},
    {mma_paths::kHopperFp8F16, Format::e4m3, Format::e4m3, 32},
    {mma_paths::kWidenedFp8, Format::e4m3, Format::e4m3, 32},
    {mma_paths::kWidenedFp8, Format::e5m2, Format::e5m2, 32},
    {mma_paths::kWidenedFp8F16, Format::e4m3, Format::e5m2, 32},
    {mma_paths::kWidenedFp8K16, Format::e5m2, Format::e4m3, 16},
    {mma_paths::kWidenedFp8K16F16, Format::e5m2, Format::e5m2, 16},
    {mma_paths::kHopperK8F16, Format::f16, Format::f16, 8},
    {mma_paths::kSm120Fp8K16, Format::e4m3, Format::e5m2, 16},
    {mma_paths::kBlackwellF8f6f4, Format::e2m3, Format::e3m2, 32},
    {mma_paths::kBlackwellF8f6f4, Format::e5m2, Format::e2m1, 32, true},
    {mma_paths::kBlackwellF8f6f4F16, Format::e5m2, Format::e4m3, 32},
};

bool may_be_codes(Format format, int count, int k) {
  return (format == Format::f16 || format == Format::bf16) && count % 8 == 0 && k % 8 == 0;
}

// The operand as its codes, brought along k or along the index; negated twice.
MmaOperand operand_of_codes(Format format, const std::vector<std::vector<std::uint32_t>>& codes, MmaOperand::Run run) {
  const bool along_k = run == MmaOperand::Run::along_k;
  const std::size_t k = codes.front().size();
  MmaOperand operand;
  operand.expect_codes(format, static_cast<int>(codes.size()), static_cast<int>(k), run);
  for (std::size_t i = 0; i < codes.size(); i += along_k ? 1 : 8)
    for (std::size_t j = 0; j < k; j += along_k ? 8 : 1) {
      std::uint16_t eight[8];
      for (std::size_t e = 0; e < 8; ++e)
        eight[e] = static_cast<std::uint16_t>((along_k ? codes[i][j + e] : codes[i + e][j]) ^ 0x8000);
      operand.take_codes(reinterpret_cast<const std::byte*>(eight), static_cast<int>(i), static_cast<int>(j), true);
    }
  return operand;
}

// One random tile: fast and plain results, compared in every output.
void check_tile(const Case& c, Data data, int rows, int columns, std::uint64_t seed) {
  const auto k = static_cast<std::size_t>(c.k);
  MmaOperand a(rows, c.k);
  MmaOperand b(columns, c.k);
  std::vector<std::vector<std::uint32_t>> a_codes(static_cast<std::size_t>(rows), std::vector<std::uint32_t>(k));
  std::vector<std::vector<std::uint32_t>> b_codes(static_cast<std::size_t>(columns), std::vector<std::uint32_t>(k));
  std::vector<std::vector<std::uint8_t>> a_scales(static_cast<std::size_t>(rows));
  std::vector<std::vector<std::uint8_t>> b_scales(static_cast<std::size_t>(columns));
  const auto fill = [&](MmaOperand& operand, auto& codes, auto& scales, Format format, std::uint64_t stream) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      for (std::size_t j = 0; j < k; ++j) {
        std::uint32_t code = test::draw_operand(format, data, test::random_bits(seed * 7 + stream, i * 64 + j));
        // Cancelling: most odd products undo the even one before them.
        if (data == Data::cancelling && j % 2 == 1 && (test::random_bits(seed * 7 + 5, j) & 3) != 0)
          code = codes[i][j - 1] ^ (stream == 1 ? test::operand_sign(format) : 0u);
        codes[i][j] = code;
        if (c.path.pairs_split)
          operand.set(Format::f16, widen_fp8(format, code), static_cast<int>(i), static_cast<int>(j));
        else
          operand.set(format, code, static_cast<int>(i), static_cast<int>(j));
      }
      if (!c.scaled) continue;
      const std::uint64_t r = test::random_bits(seed * 7 + stream + 2, i);
      scales[i] = {static_cast<std::uint8_t>(data == Data::all_bits ? r : 120 + r % 16)};
      operand.scale(scales[i][0], static_cast<int>(i), 0, 32);
    }
  };
  fill(a, a_codes, a_scales, c.a, 0);
  fill(b, b_codes, b_scales, c.b, 1);
  const int pitch = columns + 3;
  std::vector<std::uint32_t> d(static_cast<std::size_t>(rows * pitch), 0xDEADBEEF);
  std::vector<std::uint32_t> want = d;
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      const auto at = static_cast<std::size_t>(m * pitch + n);
      const std::uint64_t z = test::random_bits(seed * 7 + 4, at);
      d[at] = z % 9 == 0 ? 0 : test::draw_accumulator(c.path.result == MmaResult::f16, data, z);
      const auto row = static_cast<std::size_t>(m);
      const auto column = static_cast<std::size_t>(n);
      want[at] = mma_output(c.path, c.a, c.b, a_codes[row], b_codes[column], d[at], a_scales[row], b_scales[column]);
    }
  }
  for (MmaVariant variant : {MmaVariant::baseline, MmaVariant::avx2, MmaVariant::avx512}) {
    if (!mma_variant_available(variant)) continue;
    std::vector<std::uint32_t> got = d;
    const auto compare = [&](const MmaOperand& rows_of, const MmaOperand& columns_of) {
      got = d;
      mma_tile_with(variant, c.path, rows_of, columns_of, got.data(), pitch);
      std::size_t first = 0;
      while (first < got.size() && got[first] == want[first]) ++first;
      if (first == got.size()) return;
      CAPTURE(c.path.name);
      CAPTURE(static_cast<int>(data));
      CAPTURE(static_cast<int>(variant));
      FAIL_CHECK("output " << first << " fast " << got[first] << " plain " << want[first]);
    };
    compare(a, b);
    if (!may_be_codes(c.a, rows, c.k) || !may_be_codes(c.b, columns, c.k)) continue;
    for (MmaOperand::Run run : {MmaOperand::Run::along_k, MmaOperand::Run::along_index}) {
      compare(operand_of_codes(c.a, a_codes, run), b);
      compare(operand_of_codes(c.a, a_codes, run), operand_of_codes(c.b, b_codes, run));
    }
  }
}

TEST_CASE("the tile kernel equals the plain model") {
  for (const Case& c : kCases)
    for (Data data : kAllData) {
      check_tile(c, data, 16, 48, 1);
      for (std::uint64_t seed = 2; seed < 12; ++seed) check_tile(c, data, 8, 16, seed);
      check_tile(c, data, 5, 8, 20);
      check_tile(c, data, 19, 21, 21);
    }
}

TEST_CASE("the tile kernel leaves the caller's rounding as it was") {
  for (MmaVariant variant : {MmaVariant::baseline, MmaVariant::avx2, MmaVariant::avx512}) {
    if (!mma_variant_available(variant)) continue;
    MmaOperand a(1, 16);
    MmaOperand b(16, 16);
    for (int k = 0; k < 16; ++k) a.set(Format::bf16, 0x3F80, 0, k);
    std::vector<std::uint32_t> d(16, 0x3F800000);
    mma_tile_with(variant, mma_paths::kHopperF32, a, b, d.data(), 16);
    const volatile float one = 1.0f;
    const volatile float more_than_half = 0x1.8p-24f;
    CHECK(one + more_than_half > one);
  }
}

// What the kernel forms at once ends at sums of 2^31 units and at certain exponents: one row on each side of every end.
TEST_CASE("the tile kernel equals the plain model at the ends of what it forms at once") {
  struct Edge {
    Format format;
    MmaPath path;
    std::uint32_t a, b, c;
  };
  const auto bf16 = [](int exponent) { return static_cast<std::uint32_t>((exponent + 127) << 7 | 0x7F); };
  const auto f32 = [](int exponent) { return static_cast<std::uint32_t>((exponent + 127) << 23 | 0x7FFFFF); };
  std::vector<Edge> edges;
  for (std::uint32_t sign : {0u, 0x80000000u}) {
    const std::uint32_t half = sign >> 16;
    for (int c : {-3, -1, 0, 1})  // 16 products of almost 4, and C
      edges.push_back({Format::f16, mma_paths::kHopperF32, 0x3FFF, 0x3FFF | half, f32(c) | sign});
    for (int c : {-3, 0, 5})
      edges.push_back({Format::e4m3, mma_paths::kBlackwellF8f6f4, 0x3F, 0x3F | half >> 8, f32(c) | sign});
    for (int a : {-64, -63, -62, -51, -50, -49, 59, 60, 61, 62, 63})
      for (int c : {-126, -101, -100, 119, 120, 121, 127}) {
        edges.push_back({Format::bf16, mma_paths::kHopperF32, bf16(a), bf16(a) | half, f32(c) | sign});
        edges.push_back({Format::bf16, mma_paths::kHopperF32, bf16(a), half, f32(c) | sign});
        edges.push_back({Format::bf16, mma_paths::kHopperF32, bf16(a), bf16(a) | half, sign});
      }
  }
  for (const Edge& edge : edges) {
    constexpr int kColumns = 48;
    const int k = edge.format == Format::e4m3 ? 32 : 16;
    MmaOperand a(3, k);
    MmaOperand b(kColumns, k);
    // Only one column of one row is at the end: what is formed beside it must not change.
    for (int i = 0; i < k; ++i) {
      a.set(edge.format, edge.a, 1, i);
      b.set(edge.format, edge.b, 37, i);
    }
    const std::vector<std::uint32_t> row(static_cast<std::size_t>(k), edge.a),
        column(static_cast<std::size_t>(k), edge.b);
    std::vector<std::uint32_t> d(3 * kColumns, 0x3F800000);
    d[kColumns + 37] = edge.c;
    std::vector<std::uint32_t> want = d;
    want[kColumns + 37] = mma_output(edge.path, edge.format, edge.format, row, column, edge.c);
    for (MmaVariant variant : {MmaVariant::baseline, MmaVariant::avx2, MmaVariant::avx512}) {
      if (!mma_variant_available(variant)) continue;
      std::vector<std::uint32_t> got = d;
      mma_tile_with(variant, edge.path, a, b, got.data(), kColumns);
      CAPTURE(edge.a);
      CAPTURE(edge.b);
      CAPTURE(edge.c);
      CHECK(got == want);
    }
  }
}

TEST_CASE("the tile kernel equals the plain model, long" * doctest::skip()) {
  for (const Case& c : kCases)
    for (Data data : kAllData)
      for (std::uint64_t seed = 100; seed < 1100; ++seed) check_tile(c, data, 16, 16, seed);
}

}  // namespace
}  // namespace tessera::emulator::math
