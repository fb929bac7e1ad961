// 4-bit and integer matrix products against their plain models.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "emulator/math/mma_fp4.h"
#include "emulator/math/mma_integer.h"
#include "emulator/math/mma_operand.h"
#include "emulator/math/mma_step.h"
#include "tests/emulator_math/random.h"

namespace tessera::emulator::math {
namespace {

struct Fp4Case {
  Fp4Path path;
  Format scale;
  int block;
};
const Fp4Case kFp4Cases[] = {{mma_paths::kTcgen05Fp4, Format::ue4m3, 16},
                             {mma_paths::kTcgen05Fp4, Format::ue8m0, 16},
                             {mma_paths::kTcgen05Fp4, Format::ue8m0, 32},
                             {mma_paths::kSm120Fp4Narrow, Format::ue4m3, 16}};

// One row and one column: codes, packed bytes, scales.
struct Line {
  std::vector<std::uint32_t> codes;
  std::vector<std::uint8_t> scales;
};

Line random_line(const Fp4Case& c, bool wild, std::uint64_t seed) {
  Line line;
  for (std::uint64_t k = 0; k < 64; ++k) {
    const std::uint64_t r = test::random_bits(seed, k);
    line.codes.push_back(static_cast<std::uint32_t>(r % 7 == 0 ? 0 : r >> 8 & 15));
  }
  for (std::uint64_t s = 0; s < 4; ++s) {
    const std::uint64_t r = test::random_bits(seed + 1, s);
    const std::uint64_t tame = c.scale == Format::ue8m0 ? 110 + r % 30 : 0x28 + r % 0x28;
    line.scales.push_back(static_cast<std::uint8_t>(wild ? r >> 3 : tame));
  }
  return line;
}

void load(Fp4Operand& operand, const Fp4Case& c, const Line& line, int index) {
  std::vector<std::byte> packed;
  for (std::size_t k = 0; k < 64; k += 2)
    packed.push_back(static_cast<std::byte>(line.codes[k] | line.codes[k + 1] << 4));
  operand.decode(packed.data(), 64, index, 0);
  for (int k = 0; k < 64; k += c.block)
    operand.scale(c.scale, line.scales[static_cast<std::size_t>(k / c.block)], index, k, c.block);
}

TEST_CASE("4-bit tiles equal the plain model") {
  for (const Fp4Case& c : kFp4Cases) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const bool wild = seed % 2 == 1;
      constexpr int kRows = 4;
      constexpr int kColumns = 70;
      Fp4Operand a(kRows, 64);
      Fp4Operand b(kColumns, 64);
      std::vector<Line> rows;
      std::vector<Line> columns;
      for (std::uint64_t i = 0; i < kRows; ++i) rows.push_back(random_line(c, wild, seed * 1000 + 2 * i));
      for (std::uint64_t i = 0; i < kColumns; ++i) columns.push_back(random_line(c, wild, seed * 1000 + 100 + 2 * i));
      for (int i = 0; i < kRows; ++i) load(a, c, rows[static_cast<std::size_t>(i)], i);
      for (int i = 0; i < kColumns; ++i) load(b, c, columns[static_cast<std::size_t>(i)], i);
      std::vector<std::uint32_t> d(kRows * kColumns);
      std::vector<std::uint32_t> want(d.size());
      for (std::size_t i = 0; i < d.size(); ++i) {
        const std::uint64_t r = test::random_bits(seed * 1000 + 999, i);
        const int e = static_cast<int>(r >> 40) % 60 - 30;
        const double near = std::ldexp(1.0 + static_cast<double>(r & 0xFFFFFF) / 0x1000000, e);
        d[i] = r % 5 == 0 ? 0 : wild ? static_cast<std::uint32_t>(r >> 8) : bits_of(static_cast<float>(near));
        want[i] = fp4_output(c.path, c.scale, c.block, rows[i / kColumns].codes, columns[i % kColumns].codes,
                             rows[i / kColumns].scales, columns[i % kColumns].scales, d[i]);
      }
      fp4_tile(c.path, a, b, d.data(), kColumns);
      REQUIRE(d == want);
    }
  }
}

TEST_CASE("4-bit products by hand") {
  std::vector<std::uint32_t> a(64, 0);
  std::vector<std::uint32_t> b(64, 0);
  a[0] = 0x7;  // 6
  b[0] = 0xF;  // -6
  a[63] = 0x1;
  b[63] = 0x1;  // 0.25 together
  const std::vector<std::uint8_t> one(4, 0x38);
  const std::vector<std::uint8_t> scales{0x40, 0x38, 0x38, 0x39};  // 2, 1, 1, 1.125
  CHECK(float_of(fp4_output(mma_paths::kTcgen05Fp4, Format::ue4m3, 16, a, b, scales, one, bits_of(1.0f))) ==
        -72.0f + 0.28125f + 1.0f);
}

TEST_CASE("integer tiles: exact, wrapping, clamped") {
  constexpr int kRows = 5;
  constexpr int kColumns = 300;
  constexpr int kK = 64;
  using Limits = std::numeric_limits<std::int32_t>;
  for (IntegerFormat af : {IntegerFormat::s8, IntegerFormat::u8, IntegerFormat::s4, IntegerFormat::u4}) {
    const bool nibbles = af == IntegerFormat::s4 || af == IntegerFormat::u4;
    const bool is_signed = af == IntegerFormat::s8 || af == IntegerFormat::s4;
    const int bits = nibbles ? 4 : 8;
    const auto value = [&](std::uint64_t stream, int i, int k) {
      const auto raw =
          static_cast<int>(test::random_bits(stream, static_cast<std::uint64_t>(i * kK + k)) & ((1u << bits) - 1));
      return is_signed && raw >= 1 << (bits - 1) ? raw - (1 << bits) : raw;
    };
    IntegerOperand a(kRows, kK);
    IntegerOperand b(kColumns, kK);
    const auto fill = [&](IntegerOperand& operand, std::uint64_t stream) {
      for (int i = 0; i < operand.count(); ++i) {
        std::vector<std::byte> packed(nibbles ? kK / 2 : kK);
        for (int k = 0; k < kK; ++k) {
          const auto code = static_cast<unsigned>(value(stream, i, k)) & ((1u << bits) - 1);
          auto& byte = packed[static_cast<std::size_t>(nibbles ? k / 2 : k)];
          byte |= static_cast<std::byte>(code << (nibbles ? k % 2 * 4 : 0));
        }
        operand.decode(af, packed.data(), kK, i, 0, IntegerOperand::Run::along_k);
      }
    };
    fill(a, 1);
    fill(b, 2);
    for (bool saturate : {false, true}) {
      std::vector<std::int32_t> d(kRows * kColumns);
      std::vector<std::int32_t> want(d.size());
      for (int m = 0; m < kRows; ++m)
        for (int n = 0; n < kColumns; ++n) {
          const auto at = static_cast<std::size_t>(m * kColumns + n);
          d[at] = at % 3 == 0 ? Limits::max() - 5 : at % 3 == 1 ? Limits::min() + 5 : static_cast<std::int32_t>(at);
          std::int64_t sum = d[at];
          for (int k = 0; k < kK; ++k) {
            sum += value(1, m, k) * value(2, n, k);
            if (saturate && k % 32 == 31)
              sum = sum > Limits::max() ? Limits::max() : sum < Limits::min() ? Limits::min() : sum;
          }
          want[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
        }
      integer_tile(a, b, d.data(), kColumns, saturate, 32);
      REQUIRE(d == want);
    }
  }
}

TEST_CASE("padded 4- and 6-bit elements, and decoding of runs") {
  std::array<std::byte, 16> packed{};
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t code = i * 3 + 1;  // six bits, little-endian stream
    packed[i * 6 / 8] |= static_cast<std::byte>(code << i * 6 % 8);
    if (i * 6 % 8 > 2) packed[i * 6 / 8 + 1] |= static_cast<std::byte>(code >> (8 - i * 6 % 8));
  }
  const std::array<std::byte, 16> six = unpack_padded(Format::e3m2, packed.data());
  for (std::size_t i = 0; i < 16; ++i) CHECK(static_cast<std::size_t>(six[i]) == i * 3 + 1);
  packed = {std::byte{0x21}, std::byte{0x43}};
  const std::array<std::byte, 16> four = unpack_padded(Format::e2m1, packed.data());
  for (std::size_t i = 0; i < 4; ++i) CHECK(static_cast<std::size_t>(four[i]) == i + 1);
  CHECK(mma_sync_code(Format::e2m1, 0x3D) == 0xF);
  CHECK(mma_sync_code(Format::e2m3, 0xC1) == 1);

  MmaOperand operand(3, 8);
  const std::array<std::uint16_t, 4> codes{0x3F80, 0xC040, 0x0000, 0x0001};  // bf16: 1, -3, 0, the smallest subnormal
  operand.decode(Format::bf16, reinterpret_cast<const std::byte*>(codes.data()), 4, 1, 2, MmaOperand::Run::along_k);
  CHECK(operand.significands(2)[1] == 1.0f);
  CHECK(operand.significands(3)[1] == -1.5f);
  CHECK(operand.exponents(3)[1] == 1);
  CHECK(operand.exponents(4)[1] == kZeroExponent);
  CHECK(operand.significands(5)[1] == 1.0f / 128);
  CHECK(operand.exponents(5)[1] == -126);
  operand.decode(Format::bf16, reinterpret_cast<const std::byte*>(codes.data()), 2, 0, 7, MmaOperand::Run::along_index,
                 true);
  CHECK(operand.significands(7)[0] == -1.0f);
  CHECK(operand.significands(7)[1] == 1.5f);
}

template <Format F>
void check_all_codes(std::uint32_t first, std::uint32_t step) {
  MmaOperand operand(1, 1);
  for (std::uint64_t code = first; code < std::uint64_t{65536} * step; code += step) {
    operand.set(F, static_cast<std::uint32_t>(code), 0, 0);
    const double value = decode<F>(code);
    const double significand = static_cast<double>(operand.significands(0)[0]);
    const std::int32_t exponent = operand.exponents(0)[0];
    if (value != value) {
      REQUIRE(exponent == kNanExponent);
    } else if (std::isinf(value)) {
      REQUIRE(exponent == kInfinityExponent);
      REQUIRE(std::signbit(significand) == std::signbit(value));
    } else if (value == 0.0) {
      REQUIRE(exponent == kZeroExponent);
      REQUIRE(significand == 0.0);
    } else {
      REQUIRE(std::ldexp(significand, exponent) == value);
      REQUIRE(exponent >= 1 - info_of(F).bias);
      REQUIRE((std::fabs(significand) >= 1.0 || exponent == 1 - info_of(F).bias));
    }
  }
}

TEST_CASE("every operand code decodes to significand and exponent") {
  check_all_codes<Format::f16>(0, 1);
  check_all_codes<Format::bf16>(0, 1);
  check_all_codes<Format::tf32>(0x1234, 1 << 16);
  check_all_codes<Format::e4m3>(0, 1);
  check_all_codes<Format::e5m2>(0, 1);
}

TEST_CASE("bits") {
  const std::uint32_t a[] = {0xF0F0F0F0, 1};
  const std::uint32_t b[] = {0xFF00FF00, 3};
  CHECK(bit_dot(BitOperation::and_popc, a, b, 2, 10) == 10 + 8 + 1);
  CHECK(bit_dot(BitOperation::xor_popc, a, b, 2, 10) == 10 + 16 + 1);
}

}  // namespace
}  // namespace tessera::emulator::math
