// cvt between integers and between integers and floats.
//
// Float to integer always clamps to the destination's range, NaN gives 0, or 1 << (bits - 1) where f64 or a 64-bit
// destination is involved (PTX ISA, cvt). Integer to float rounds once. Integer to integer truncates, or clamps with
// .sat. Document only.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "emulator/math/convert.h"

namespace tessera::emulator::math {

/// cvt.{rni,rzi,rmi,rpi}.Int from the exact value of a float. wide: the source is f64 (it decides what NaN gives).
template <class Int>
Int float_to_integer(double value, Rounding mode, bool wide) {
  using Limits = std::numeric_limits<Int>;
  if (value != value) {
    if (!wide && sizeof(Int) < 8) return 0;
    return static_cast<Int>(std::make_unsigned_t<Int>{1} << (sizeof(Int) * 8 - 1));
  }
  const double whole = round_to_integral(value, mode);
  const double beyond = std::is_signed_v<Int> ? -static_cast<double>(Limits::min())  // 2^(bits - 1), 2^bits: exact
                                              : 2.0 * static_cast<double>(Limits::max() / 2 + 1);
  if (whole >= beyond) return Limits::max();
  if (whole <= static_cast<double>(Limits::min())) return Limits::min();
  return static_cast<Int>(whole);
}

/// cvt.{rn,rz,rm,rp}.F.Int: the code of the float.
template <Format F, class Int>
constexpr std::uint64_t integer_to_float(Int value, Rounding mode) {
  bool negative = false;
  if constexpr (std::is_signed_v<Int>) negative = value < 0;
  const auto wide = static_cast<std::uint64_t>(value);
  return pack(info_of(F), negative, negative ? std::uint64_t{0} - wide : wide, 0, mode);
}

/// The type of an integer of 8 to 64 bits.
struct IntegerType {
  unsigned bits;
  bool is_signed;
};

/// cvt.To.From, by way of 64 bits, to which the result is extended as To's values are: the low bits, or where kSat the
/// nearest value that To holds.
template <bool kSat, class From>
constexpr std::uint64_t integer_to_integer(From value, IntegerType to) {
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - to.bits);
  if constexpr (kSat) {
    const std::uint64_t most = to.is_signed ? mask >> 1 : mask;
    const std::int64_t least = to.is_signed ? -static_cast<std::int64_t>(most) - 1 : 0;
    if (std::cmp_less(value, least)) return static_cast<std::uint64_t>(least);
    return std::cmp_greater(value, most) ? most : static_cast<std::uint64_t>(value);
  } else {
    const std::uint64_t sign = to.is_signed ? (mask >> 1) + 1 : 0;
    return ((static_cast<std::uint64_t>(value) & mask) ^ sign) - sign;
  }
}

}  // namespace tessera::emulator::math
