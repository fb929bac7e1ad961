// Every floating format that PTX knows, as one description, with one decoder and one encoder over it.
//
// A format is sign, exponent field, fraction field, bias, and what its topmost codes mean. unpack() turns a code into
// sign * significand * 2^lsb without loss; pack() goes back from any exact value, however wide, and is the only place
// where rounding, overflow and saturation are decided. Because every format here but f64 fits a double with room to
// spare (f32: 24 of 53 bits), decode<F>() to double is exact and encode<F>() from double rounds once.
//
// Functions take the format as a template argument: the description is a constant, and the compiler folds it away.
//
// Sources: PTX ISA "Alternate floating-point data formats" and "cvt"; cuda_fp8/fp6/fp4 semantics; NaN codes and the
// conversions marked so measured on an H200 (all 2^32 inputs).
#pragma once

#include <cstdint>
#include <type_traits>

#include "emulator/math/bits.h"

namespace tessera::emulator::math {

enum class Format : std::uint8_t { f64, f32, tf32, f16, bf16, e5m2, e4m3, e3m2, e2m3, e2m1, ue8m0, ue4m3 };

/// What the codes with an all-ones exponent mean.
enum class Specials : std::uint8_t {
  ieee,      ///< infinity and NaN: f64, f32, tf32, f16, bf16, e5m2
  nan_only,  ///< only the all-ones code is a NaN, the others are numbers: e4m3, ue4m3
  none       ///< every code is a number: e3m2, e2m3, e2m1
};

/// tf32 is described as its 19 significant bits; its 32-bit container holds them from bit 13 up (see container_shift).
struct FormatInfo {
  int exponent_bits;
  int fraction_bits;
  int bias;
  Specials specials;
  bool has_sign;
  std::uint64_t canonical_nan;  ///< the code that a conversion writes for NaN; formats without NaN: the largest value
};

/// ue8m0 has no row: it has neither sign nor fraction nor zero, and functions of its own below.
constexpr FormatInfo info_of(Format format) {
  switch (format) {
    case Format::f64:
      return {11, 52, 1023, Specials::ieee, true, 0xFFF8000000000000};
    case Format::f32:
      return {8, 23, 127, Specials::ieee, true, kCanonicalNanF32};
    case Format::tf32:
      return {8, 10, 127, Specials::ieee, true, 0x7FFFE000 >> 13};
    case Format::f16:
      return {5, 10, 15, Specials::ieee, true, 0x7FFF};
    case Format::bf16:
      return {8, 7, 127, Specials::ieee, true, 0x7FFF};
    case Format::e5m2:
      return {5, 2, 15, Specials::ieee, true, 0x7F};
    case Format::e4m3:
      return {4, 3, 7, Specials::nan_only, true, 0x7F};
    case Format::ue4m3:
      return {4, 3, 7, Specials::nan_only, false, 0x7F};
    case Format::e3m2:
      return {3, 2, 3, Specials::none, true, 0x1F};
    case Format::e2m3:
      return {2, 3, 1, Specials::none, true, 0x1F};
    case Format::e2m1:
      return {2, 1, 1, Specials::none, true, 0x7};
    case Format::ue8m0:
      return {8, 0, 127, Specials::nan_only, false, 0xFF};
  }
  return {};
}

/// Position of the format's lowest bit in its container: 13 for tf32 (a 32-bit register), else 0.
constexpr int container_shift(Format format) { return format == Format::tf32 ? 13 : 0; }

/// The code of the largest finite value (without sign).
constexpr std::uint64_t max_finite_code(const FormatInfo& f) {
  const std::uint64_t all_ones = (std::uint64_t{1} << (f.exponent_bits + f.fraction_bits)) - 1;
  if (f.specials == Specials::none) return all_ones;
  if (f.specials == Specials::nan_only) return all_ones - 1;
  return all_ones - (std::uint64_t{1} << f.fraction_bits);
}

/// PTX rounding modifiers. nearest_away is .rna (ties away from zero), which only cvt to tf32 has.
enum class Rounding : std::uint8_t { nearest_even, toward_zero, down, up, nearest_away };

enum class NumberClass : std::uint8_t { zero, finite, infinity, nan };

/// sign * significand * 2^lsb. The significand is not normalised: a subnormal keeps the format's smallest exponent.
struct Unpacked {
  NumberClass kind = NumberClass::zero;
  bool negative = false;
  std::uint64_t significand = 0;
  int lsb = 0;       ///< weight of the significand's lowest bit
  int exponent = 0;  ///< weight of the place where a normal number's leading one stands
};

constexpr Unpacked unpack(const FormatInfo& f, std::uint64_t code) {
  const std::uint64_t fraction = code & ((std::uint64_t{1} << f.fraction_bits) - 1);
  const auto field = static_cast<int>((code >> f.fraction_bits) & ((std::uint64_t{1} << f.exponent_bits) - 1));
  Unpacked u;
  u.negative = f.has_sign && ((code >> (f.fraction_bits + f.exponent_bits)) & 1) != 0;
  const std::uint64_t magnitude_code = code & ((std::uint64_t{1} << (f.fraction_bits + f.exponent_bits)) - 1);
  if (magnitude_code > max_finite_code(f)) {
    u.kind = f.specials == Specials::ieee && fraction == 0 ? NumberClass::infinity : NumberClass::nan;
    return u;
  }
  u.exponent = (field != 0 ? field : 1) - f.bias;
  u.lsb = u.exponent - f.fraction_bits;
  u.significand = field != 0 ? fraction | std::uint64_t{1} << f.fraction_bits : fraction;
  u.kind = u.significand != 0 ? NumberClass::finite : NumberClass::zero;
  return u;
}

constexpr std::uint64_t sign_bit(const FormatInfo& f, bool negative) {
  return f.has_sign && negative ? std::uint64_t{1} << (f.fraction_bits + f.exponent_bits) : 0;
}

/// Whether the part cut off rounds the magnitude up. half and beyond: the cut part is at least, more than, half a unit.
constexpr bool rounds_up(Rounding mode, bool negative, bool odd, bool at_least_half, bool beyond_half, bool inexact) {
  switch (mode) {
    case Rounding::nearest_even:
      return beyond_half || (at_least_half && odd);
    case Rounding::nearest_away:
      return at_least_half;
    case Rounding::toward_zero:
      return false;
    case Rounding::down:
      return negative && inexact;
    case Rounding::up:
      return !negative && inexact;
  }
  return false;
}

/// The code beyond the largest finite value: infinity where the format and the direction have one, else the largest.
constexpr std::uint64_t overflow_code(const FormatInfo& f, bool negative, Rounding mode, bool saturate) {
  const bool toward_zero =
      mode == Rounding::toward_zero || (mode == Rounding::down && !negative) || (mode == Rounding::up && negative);
  if (saturate || toward_zero || f.specials == Specials::none) return max_finite_code(f);
  return f.specials == Specials::ieee ? max_finite_code(f) + 1 : f.canonical_nan;
}

/// The code of (negative ? -1 : 1) * magnitude * 2^lsb, rounded once. Unsigned is std::uint64_t or Uint128. saturate is
/// .satfinite: overflow gives the largest finite value.
template <class Unsigned>
constexpr std::uint64_t pack(const FormatInfo& f, bool negative, Unsigned magnitude, int lsb, Rounding mode,
                             bool saturate = false) {
  const std::uint64_t sign = sign_bit(f, negative);
  if (magnitude == 0) return sign;
  const int exponent = lsb + bit_width(magnitude) - 1;
  const int smallest = 1 - f.bias;
  const int unit = (exponent > smallest ? exponent : smallest) - f.fraction_bits;  // weight of the last kept bit
  const int cut = unit - lsb;
  Unsigned kept = 0;
  if (cut <= 0) {
    kept = magnitude << -cut;
  } else {
    constexpr int kBits = static_cast<int>(sizeof(Unsigned)) * 8;
    const Unsigned one = 1;
    kept = cut < kBits ? magnitude >> cut : 0;
    const Unsigned half = cut <= kBits ? one << (cut - 1) : 0;  // beyond that the whole value is under half a unit
    const Unsigned rest = cut < kBits ? magnitude & ((one << cut) - 1) : magnitude;
    const bool at_least_half = half != 0 && rest >= half;
    const bool beyond_half = half != 0 && rest > half;
    if (rounds_up(mode, negative, (kept & 1) != 0, at_least_half, beyond_half, rest != 0)) ++kept;
  }
  // The leading one of a normal number adds 1 to the exponent field, a carry out of the fraction adds one more.
  const auto steps = static_cast<std::uint64_t>(unit + f.fraction_bits - smallest);
  if (steps > std::uint64_t{1} << f.exponent_bits) return sign | overflow_code(f, negative, mode, saturate);
  const std::uint64_t code = (steps << f.fraction_bits) + static_cast<std::uint64_t>(kept);
  return sign | (code > max_finite_code(f) ? overflow_code(f, negative, mode, saturate) : code);
}

/// ue8m0 to double: 2^(code - 127), code 255 is NaN.
constexpr double decode_ue8m0(std::uint32_t code) {
  if ((code & 0xFF) == 0xFF) return double_of(std::uint64_t{0x7FF8000000000000});
  return double_of(static_cast<std::uint64_t>((code & 0xFF) + 1023 - 127) << 52);
}

/// The exact value of a code (bits above the format's width are ignored; tf32 in its 32-bit container). A NaN becomes
/// the host's quiet NaN of the same sign.
template <Format F>
constexpr double decode(std::uint64_t code) {
  if constexpr (F == Format::ue8m0) {
    return decode_ue8m0(static_cast<std::uint32_t>(code));
  } else if constexpr (F == Format::f64) {
    return double_of(code);
  } else if constexpr (F == Format::f32) {
    return static_cast<double>(float_of(static_cast<std::uint32_t>(code)));
  } else {
    constexpr FormatInfo kInfo = info_of(F);
    const Unpacked u = unpack(kInfo, code >> container_shift(F));
    const std::uint64_t sign = u.negative ? std::uint64_t{1} << 63 : 0;
    if (u.kind == NumberClass::nan) return double_of(sign | 0x7FF8000000000000);
    if (u.kind == NumberClass::infinity) return double_of(sign | 0x7FF0000000000000);
    const double unit = double_of(static_cast<std::uint64_t>(u.lsb + 1023) << 52);
    const double magnitude = static_cast<double>(u.significand) * unit;  // at most 11 bits times a power of two
    return double_of(sign | bits_of(magnitude));
  }
}

/// ue8m0 from a double: sign ignored, .rz or .rp on the exponent, zero and anything up to 2^-127 gives code 0.
/// Document only (host semantics of cuda_fp8): overflow gives NaN, or 254 with .satfinite.
constexpr std::uint32_t encode_ue8m0(double value, Rounding mode, bool saturate) {
  const std::uint64_t magnitude = bits_of(value) & 0x7FFFFFFFFFFFFFFF;
  if (magnitude > 0x7FF0000000000000) return 0xFF;
  const auto field = static_cast<int>(magnitude >> 52);
  int code = field - 1023 + 127;
  if (mode == Rounding::up && (magnitude & 0xFFFFFFFFFFFFF) != 0) ++code;
  if (code < 0 || field == 0) return 0;
  if (code > 254) return saturate ? 254 : 255;
  return static_cast<std::uint32_t>(code);
}

/// The format's code nearest to a double in the given direction, in its container. NaN: the canonical NaN code, or the
/// largest positive value where the format has no NaN. Infinity saturates with saturate or where there is no infinity.
template <Format F>
constexpr std::uint64_t encode(double value, Rounding mode, bool saturate = false) {
  if constexpr (F == Format::ue8m0) {
    return encode_ue8m0(value, mode, saturate);
  } else {
    constexpr FormatInfo kInfo = info_of(F);
    const std::uint64_t bits = bits_of(value);
    const bool negative = (bits >> 63) != 0;
    const Unpacked u = unpack(info_of(Format::f64), bits);
    if (u.kind == NumberClass::nan) return kInfo.canonical_nan << container_shift(F);
    std::uint64_t code = 0;
    if (u.kind == NumberClass::infinity) {
      const bool keeps = !saturate && kInfo.specials == Specials::ieee;
      code = sign_bit(kInfo, negative) |
             (keeps ? max_finite_code(kInfo) + 1 : overflow_code(kInfo, negative, Rounding::nearest_even, saturate));
    } else {
      code = pack(kInfo, negative, u.significand, u.lsb, mode, saturate);
    }
    return code << container_shift(F);
  }
}

}  // namespace tessera::emulator::math
