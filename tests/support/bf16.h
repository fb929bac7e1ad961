// bf16 as its bits, for tests that have no tensor of the reference.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

namespace tessera::testing {

/// To the nearest, ties to even; no NaN.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline double from_bf16(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

/// A matrix of normal numbers.
struct Bf16Matrix {
  std::int64_t columns;
  std::vector<std::uint16_t> bits;
  Bf16Matrix(std::int64_t rows, std::int64_t columns_, std::uint64_t seed) : columns(columns_) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < rows * columns; ++i) bits.push_back(to_bf16(normal(random)));
  }
  double at(std::int64_t row, std::int64_t column) const {
    return from_bf16(bits[static_cast<std::size_t>(row * columns + column)]);
  }
};

}  // namespace tessera::testing
