// One encoder and one decoder for all floating formats of at most 32 bits, by their bits of exponent and mantissa;
// doubles hold every value of them exactly. f64 is copied, integers have a pair of their own.
#include "reference/number.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::reference {

namespace {

/// A binary floating-point format of at most 32 bits.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
};

constexpr FloatFormat kF16{5, 10, true}, kBf16{8, 7, true}, kTf32{8, 10, true}, kE4m3{4, 3, false}, kE5m2{5, 2, true};

std::uint64_t encode(const FloatFormat& format, double value) {
  const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << (format.bits() - 1) : 0;
  const std::uint64_t all_ones = (std::uint64_t{1} << (format.bits() - 1)) - 1;
  const std::uint64_t infinity =
      format.has_infinity ? ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits : all_ones;
  if (std::isnan(value)) return all_ones;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias());
  if (exponent > format.bias() + 1) return sign | infinity;
  // The step at this exponent is 2^(exponent - mantissa_bits); a carry out of the significand runs into the exponent.
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const std::uint64_t bits = (static_cast<std::uint64_t>(exponent + format.bias() - 1) << format.mantissa_bits) +
                             static_cast<std::uint64_t>(steps);
  return sign | std::min(bits, infinity);
}

double decode(const FloatFormat& format, std::uint64_t bits) {
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> format.mantissa_bits) & ((1U << format.exponent_bits) - 1));
  const double sign = ((bits >> (format.bits() - 1)) & 1) != 0 ? -1.0 : 1.0;
  const int top = (1 << format.exponent_bits) - 1;
  if (format.has_infinity && exponent == top)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (!format.has_infinity && exponent == top && mantissa == (std::uint64_t{1} << format.mantissa_bits) - 1)
    return std::numeric_limits<double>::quiet_NaN();
  const double significand =
      static_cast<double>(mantissa) + (exponent == 0 ? 0.0 : std::ldexp(1.0, format.mantissa_bits));
  return sign * std::ldexp(significand, std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

template <class Integer>
std::uint64_t encode_integer(double value) {
  using Limits = std::numeric_limits<Integer>;
  const double rounded = std::isnan(value) ? 0.0 : std::nearbyint(value);
  if (rounded <= static_cast<double>(Limits::min())) return static_cast<std::uint64_t>(Limits::min());
  if (rounded >= static_cast<double>(Limits::max())) return static_cast<std::uint64_t>(Limits::max());
  return static_cast<std::uint64_t>(static_cast<Integer>(rounded));
}

constexpr std::array<std::pair<DType, std::string_view>, 14> kNames{{{DType::f16, "f16"},
                                                                     {DType::bf16, "bf16"},
                                                                     {DType::f32, "f32"},
                                                                     {DType::e4m3, "e4m3"},
                                                                     {DType::e5m2, "e5m2"},
                                                                     {DType::u8, "u8"},
                                                                     {DType::u16, "u16"},
                                                                     {DType::u32, "u32"},
                                                                     {DType::s32, "s32"},
                                                                     {DType::u64, "u64"},
                                                                     {DType::s64, "s64"},
                                                                     {DType::f64, "f64"},
                                                                     {DType::tf32, "tf32"},
                                                                     {DType::s8, "s8"}}};

}  // namespace

double to_double(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::f16: {
      static const std::vector<double> table = [] {
        std::vector<double> values(1 << 16);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(kF16, i);
        return values;
      }();
      return table[bits & 0xFFFF];
    }
    case DType::bf16:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0xFFFF) << 16));
    case DType::f32:
    case DType::tf32:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case DType::e4m3:
      return decode(kE4m3, bits & 0xFF);
    case DType::e5m2:
      return decode(kE5m2, bits & 0xFF);
    case DType::f64:
      return std::bit_cast<double>(bits);
    case DType::u8:
      return static_cast<double>(bits & 0xFF);
    case DType::s8:
      return static_cast<double>(static_cast<std::int8_t>(static_cast<std::uint8_t>(bits)));
    case DType::u16:
      return static_cast<double>(bits & 0xFFFF);
    case DType::u32:
      return static_cast<double>(bits & 0xFFFFFFFF);
    case DType::s32:
      return static_cast<double>(static_cast<std::int32_t>(static_cast<std::uint32_t>(bits)));
    case DType::u64:
      return static_cast<double>(bits);
    case DType::s64:
      return static_cast<double>(static_cast<std::int64_t>(bits));
  }
  return 0;
}

std::uint64_t from_double(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return encode(kF16, value);
    case DType::bf16:
      return encode(kBf16, value);
    case DType::tf32:
      return encode(kTf32, value) << 13;
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::e4m3:
      return encode(kE4m3, value);
    case DType::e5m2:
      return encode(kE5m2, value);
    case DType::f64:
      return std::bit_cast<std::uint64_t>(value);
    case DType::u8:
      return encode_integer<std::uint8_t>(value);
    case DType::s8:
      return encode_integer<std::int8_t>(value) & 0xFF;
    case DType::u16:
      return encode_integer<std::uint16_t>(value);
    case DType::u32:
      return encode_integer<std::uint32_t>(value);
    case DType::s32:
      return encode_integer<std::int32_t>(value) & 0xFFFFFFFF;
    case DType::u64:
      return encode_integer<std::uint64_t>(value);
    case DType::s64:
      return encode_integer<std::int64_t>(value);
  }
  return 0;
}

int precision(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::tf32:
      return 11;
    case DType::bf16:
      return 8;
    case DType::f32:
      return 24;
    case DType::e4m3:
      return 4;
    case DType::e5m2:
      return 3;
    case DType::f64:
      return 53;
    default:
      return 0;
  }
}

double unit_roundoff(DType dtype) { return precision(dtype) == 0 ? 0.0 : std::ldexp(1.0, -precision(dtype)); }

double half_subnormal(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return std::ldexp(1.0, -25);
    case DType::bf16:
      return std::ldexp(1.0, -134);
    case DType::f32:
    case DType::tf32:
      return std::ldexp(1.0, -150);
    case DType::e4m3:
      return std::ldexp(1.0, -10);
    case DType::e5m2:
      return std::ldexp(1.0, -17);
    default:
      return 0;
  }
}

std::string_view dtype_name(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& [value, text] : kNames)
    if (text == name) return value;
  return std::nullopt;
}

}  // namespace tessera::reference
