// Small whole numbers in the formats that matrix products take, and digits of names: a type that holds few numbers
// exactly says where an element is by several runs, each with another digit.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera::probes {

/// 0 to base - 1 are exact in the type, and so is what a product with 0 and 1 makes of them.
struct Number {
  std::string_view type;
  int bits;  ///< in a register
  int base;
  int exponent_bits, mantissa_bits, bias;  ///< 0, 0, 0: an integer
  int shift = 0;                           ///< of the value in its container
};

inline constexpr Number kNumbers[] = {
    {"f16", 16, 1024, 5, 10, 15},    {"bf16", 16, 128, 8, 7, 127}, {"tf32", 32, 1024, 8, 23, 127},
    {"f64", 64, 1024, 11, 52, 1023}, {"e4m3", 8, 16, 4, 3, 7},     {"e5m2", 8, 8, 5, 2, 15},
    {"e3m2", 8, 8, 3, 2, 3},         {"e2m3", 8, 8, 2, 3, 1},      {"e2m1", 8, 5, 2, 1, 1, 2},
    {"s8", 8, 64, 0, 0, 0},          {"u8", 8, 64, 0, 0, 0},       {"s4", 4, 8, 0, 0, 0},
    {"u4", 4, 8, 0, 0, 0},           {"b1", 1, 2, 0, 0, 0}};

inline const Number& number_of(std::string_view type) {
  for (const Number& number : kNumbers)
    if (number.type == type) return number;
  return kNumbers[0];
}

inline std::uint64_t code_of(const Number& number, int value) {
  if (number.exponent_bits == 0 || value == 0) return static_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(std::bit_width(static_cast<unsigned>(value))) - 1;
  const std::uint64_t fraction =
      static_cast<std::uint64_t>(value - (1 << exponent)) << number.mantissa_bits >> exponent;
  return (static_cast<std::uint64_t>(exponent + number.bias) << number.mantissa_bits | fraction) << number.shift;
}

/// The number that a result register holds. type: f16 (from bit 0), f32, f64, s32.
inline int value_of(std::string_view type, std::uint64_t bits) {
  if (type == "s32") return static_cast<std::int32_t>(bits);
  if (type == "f64") return static_cast<int>(std::bit_cast<double>(bits));
  if (type == "f32") return static_cast<int>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  return exponent < 15 ? (bits & 0x7FFF) == 0 ? 0 : -1 : ((1024 | fraction) << (exponent - 15)) >> 10;
}

/// Digits that tell `count` things apart, and one of them.
inline int digits_for(int base, int count) {
  int digits = 1;
  for (long long range = base; range < count; range *= base) ++digits;
  return digits;
}
inline int digit(int base, int name, int place) {
  for (int i = 0; i < place; ++i) name /= base;
  return name % base;
}

}  // namespace tessera::probes
