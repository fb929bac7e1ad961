#include "tests/ptx_gpu/random_inputs.h"

#include <array>

namespace tessera::emulator::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

struct Layout {
  int exponent_bits;
  int fraction_bits;
  int bias;
  int width() const { return 1 + exponent_bits + fraction_bits; }
};
constexpr Layout kF64{11, 52, 1023};
constexpr Layout kF32{8, 23, 127};
constexpr Layout kF16{5, 10, 15};
constexpr Layout kBf16{8, 7, 127};
constexpr Layout kE5m2{5, 2, 15};
constexpr Layout kE4m3{4, 3, 7};

// A number of the format whose exponent lies within `spread` of 1.0's.
std::uint64_t near_one(const Layout& f, int spread, std::uint64_t r) {
  const auto step = static_cast<std::int64_t>(r >> 40) % (2 * spread + 1) - spread;
  const auto field = static_cast<std::uint64_t>(f.bias + step);
  const std::uint64_t fraction = r & ((std::uint64_t{1} << f.fraction_bits) - 1);
  return (r >> 63) << (f.exponent_bits + f.fraction_bits) | field << f.fraction_bits | fraction;
}

std::uint64_t packed(const Layout& f, int bits, int spread, std::uint64_t r) {
  std::uint64_t value = 0;
  const int width = f.width() > bits ? bits : f.width();
  for (int at = 0; at < bits; at += width)
    value |= (near_one(f, spread, mix(r + static_cast<std::uint64_t>(at))) & (~std::uint64_t{0} >> (64 - width))) << at;
  return value;
}

// What every format finds special: ends of ranges, infinities, NaN, subnormals, zeros, halves, small integers.
std::uint64_t boundary(int bits, std::uint64_t r) {
  constexpr std::array<std::uint64_t, 18> k32 = {
      0,          1,          2,          31,         32,         0x7F,       0x80,       0xFFFF,     0x7FFFFFFF,
      0x80000000, 0xFFFFFFFF, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00800000, 0x7F7FFFFF};
  constexpr std::array<std::uint64_t, 12> k16 = {0,      1,      0x7FFF, 0x8000, 0xFFFF, 0x3C00,
                                                 0xBC00, 0x7C00, 0xFC00, 0x0400, 0x3F80, 0x7F80};
  constexpr std::array<std::uint64_t, 12> k64 = {0,
                                                 1,
                                                 63,
                                                 0xFFFFFFFF,
                                                 0x7FFFFFFFFFFFFFFF,
                                                 0x8000000000000000,
                                                 0xFFFFFFFFFFFFFFFF,
                                                 0x3FF0000000000000,
                                                 0x7FF0000000000000,
                                                 0xFFF0000000000000,
                                                 0x0010000000000000,
                                                 0x7FEFFFFFFFFFFFFF};
  const std::uint64_t base = bits == 64 ? k64[r % k64.size()] : bits == 32 ? k32[r % k32.size()] : k16[r % k16.size()];
  const std::uint64_t step = (r >> 20) % 7;  // mostly the value itself or a neighbour
  return step < 4 ? base : step == 4 ? base + 1 : step == 5 ? base - 1 : base ^ (std::uint64_t{1} << (bits - 1));
}

std::uint64_t draw(int bits, int style, std::uint64_t r) {
  if (bits == 64 && style >= 2 && style <= 7) return near_one(kF64, style < 5 ? 4 : 60, r);
  switch (style) {
    case 0:
      return r;
    case 1:
      return boundary(bits, r);
    case 2:
      return packed(kF16, bits, 4, r);
    case 3:
      return packed(kBf16, bits, 12, r);
    case 4:
      return packed(kF32, bits, 4, r);
    case 5:
      return packed(kF32, bits, 40, r);
    case 6:
      return packed(kE4m3, bits, 6, r);
    case 7:
      return packed(kE5m2, bits, 14, r);
    case 8:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(r >> 50) - (1 << 13));  // small integers
    default:
      return r % 3 == 0 ? boundary(bits, r >> 8) : packed(kF16, bits, 14, r >> 8);
  }
}

int bits_of(const std::string& type) { return type == "pred" ? 1 : std::stoi(type.substr(1)); }

}  // namespace

std::vector<std::uint64_t> random_inputs(const PtxCase& test, std::size_t lanes, int style, std::uint64_t seed) {
  const bool is_matrix = test.instructions.front().find("mma") == 0 || test.instructions.front().find("wmma.mma") == 0;
  const bool half_sums = test.instructions.front().find(".f16;") != std::string::npos ||
                         test.instructions.front().find(".f16 ") != std::string::npos;
  std::vector<std::uint64_t> values;
  values.reserve(lanes * test.inputs.size());
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t i = 0; i < test.inputs.size(); ++i) {
      const std::uint64_t r = mix(mix(seed * 64 + static_cast<std::uint64_t>(style)) + lane * 64 + i);
      const int bits = bits_of(test.inputs[i].type);
      std::uint64_t value = bits == 1 ? r & 1 : draw(bits, style, r);
      // Accumulators have a format of their own.
      if (is_matrix && test.inputs[i].name[0] == 'c' && bits == 32 && style >= 2 && style <= 7)
        value = half_sums ? packed(kF16, 32, 6, r) : packed(kF32, 32, style == 5 ? 60 : 8, r);
      // Often the negative of the source before: sums that cancel.
      if (i > 0 && bits > 1 && (r >> 33) % 8 == 0 && style != 1)
        value = values.back() ^ (bits == 32 && style % 2 == 0 ? 0x80008000u : std::uint64_t{1} << (bits - 1));
      values.push_back(bits == 64 ? value : value & ((std::uint64_t{1} << bits) - 1));
    }
  }
  return values;
}

}  // namespace tessera::emulator::testing
