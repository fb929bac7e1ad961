// Bit patterns of the host's own float and double, and 128-bit integers for exact intermediate results.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::emulator::math {

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

constexpr std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
constexpr std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }
constexpr float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr double double_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }

/// What every f32 instruction returns for an invalid operation or a NaN operand (measured on H200 for the special
/// functions, conversions to tf32 excepted, and matrix instructions).
inline constexpr std::uint32_t kCanonicalNanF32 = 0x7FFFFFFF;
inline constexpr std::uint32_t kCanonicalNan16 = 0x7FFF;  ///< f16 and bf16 alike (measured on H200)
inline constexpr std::uint32_t kInfinityF32 = 0x7F800000;

constexpr bool is_nan_f32(std::uint32_t bits) { return (bits & 0x7FFFFFFF) > kInfinityF32; }
constexpr bool is_subnormal_f32(std::uint32_t bits) { return (bits & 0x7F800000) == 0 && (bits & 0x7FFFFF) != 0; }

/// Flush-to-zero: a subnormal becomes the zero of its sign.
constexpr std::uint32_t flush_f32(std::uint32_t bits) { return (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits; }

constexpr int bit_width(std::uint64_t value) { return 64 - std::countl_zero(value); }
constexpr int bit_width(Uint128 value) {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  return high != 0 ? 64 + bit_width(high) : bit_width(static_cast<std::uint64_t>(value));
}

}  // namespace tessera::emulator::math
