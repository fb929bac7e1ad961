// cvt between floating formats: one value, and the packed x2 and x4 spellings.
//
// A conversion is: decode exactly, flush or clamp as the modifiers say, encode with one rounding. NaN follows what an
// H200 does: the destination's canonical code, whatever the payload, with exceptions: bf16 to f32 is a shift,
// conversions to and from f64 keep the payload, and cvt.rna.tf32 keeps the payload's upper
// bits (so that 0x7F800001 becomes infinity; with .satfinite one unit of the last place less).
//
// Measured on H200, all 2^32 sources: f32 to e4m3x2, e5m2x2, bf16x2, f16x2, tf32; all 65,536 codes of f16x2 to fp8 and
// back. Document only: the 4- and 6-bit formats, ue8m0, f64, NaN of f16 to f32.
//
// In every packed form the first source operand lands in the upper half.
#pragma once

#include "emulator/math/float_format.h"

namespace tessera::emulator::math {

struct CvtModifiers {
  Rounding rounding = Rounding::nearest_even;
  bool ftz = false;        ///< subnormal f32 sources and results become zero
  bool sat = false;        ///< clamp to [0, 1], NaN becomes +0
  bool satfinite = false;  ///< beyond the largest finite value: that value
  bool relu = false;       ///< negative values and -0 become +0
};

/// A NaN of IEEE format S as a quiet one of D: sign and the fraction's upper bits.
template <Format D, Format S>
constexpr std::uint64_t nan_payload(std::uint64_t code) {
  constexpr FormatInfo kTo = info_of(D);
  constexpr FormatInfo kFrom = info_of(S);
  constexpr int kUp = kTo.fraction_bits - kFrom.fraction_bits;
  const std::uint64_t fraction = code & ((std::uint64_t{1} << kFrom.fraction_bits) - 1);
  const std::uint64_t moved = kUp >= 0 ? fraction << (kUp >= 0 ? kUp : 0) : fraction >> (kUp < 0 ? -kUp : 0);
  const bool negative = (code >> (kFrom.exponent_bits + kFrom.fraction_bits) & 1) != 0;
  const std::uint64_t infinity = ((std::uint64_t{1} << kTo.exponent_bits) - 1) << kTo.fraction_bits;
  return sign_bit(kTo, negative) | infinity | moved | std::uint64_t{1} << (kTo.fraction_bits - 1);
}

/// cvt.D.S of one code; tf32 in its 32-bit container.
template <Format D, Format S>
constexpr std::uint64_t convert(std::uint64_t code, CvtModifiers m = {}) {
  if constexpr (S == Format::f32) {
    if (m.ftz) code = flush_f32(static_cast<std::uint32_t>(code));
  }
  double value = decode<S>(code);
  if (value != value) {
    if (m.sat) return 0;
    if constexpr (D == Format::tf32 && S == Format::f32) {
      if (m.rounding == Rounding::nearest_away) return (code & 0xFFFFE000) - (m.satfinite ? 0x2000 : 0);
    }
    if constexpr (D == Format::f32 && S == Format::bf16) return (code & 0xFFFF) << 16;
    // To and from f64 the payload is kept; the result is quiet.
    constexpr bool kFromF64 = S == Format::f64 && (D == Format::f16 || D == Format::bf16 || D == Format::f32);
    constexpr bool kToF64 = D == Format::f64 && (S == Format::f16 || S == Format::bf16 || S == Format::f32);
    if constexpr (kFromF64 || kToF64) return nan_payload<D, S>(code);
  }
  const bool negative = (bits_of(value) >> 63) != 0;
  if (m.relu && negative && value == value) value = 0.0;
  if (m.sat) value = negative ? 0.0 : value > 1.0 ? 1.0 : value;
  std::uint64_t result = D == Format::f64 ? bits_of(value) : encode<D>(value, m.rounding, m.satfinite);
  if constexpr (D == Format::f32) {
    if (m.ftz) result = flush_f32(static_cast<std::uint32_t>(result));
  }
  return result;
}

/// cvt to a packed pair from two f32: `upper` is the first source operand. Halves are 16 bits wide for f16 and bf16,
/// bytes for the fp8, fp6 and ue8m0 formats, nibbles for e2m1.
template <Format D>
constexpr std::uint32_t convert_pair(float upper, float lower, CvtModifiers m = {}) {
  constexpr int kStep = D == Format::e2m1 ? 4 : D == Format::f16 || D == Format::bf16 ? 16 : 8;
  const auto high = static_cast<std::uint32_t>(convert<D, Format::f32>(bits_of(upper), m));
  const auto low = static_cast<std::uint32_t>(convert<D, Format::f32>(bits_of(lower), m));
  return high << kStep | low;
}

/// cvt between packed pairs: f16x2 to and from the narrow formats, bf16x2 to and from ue8m0x2.
template <Format D, Format S>
constexpr std::uint32_t convert_packed(std::uint32_t pair, CvtModifiers m = {}) {
  constexpr auto kStep = [](Format f) {
    return f == Format::e2m1 ? 4 : f == Format::f16 || f == Format::bf16 ? 16 : 8;
  };
  constexpr std::uint32_t kMask = (std::uint32_t{1} << kStep(S)) - 1;
  const auto high = static_cast<std::uint32_t>(convert<D, S>((pair >> kStep(S)) & kMask, m));
  const auto low = static_cast<std::uint32_t>(convert<D, S>(pair & kMask, m));
  return high << kStep(D) | low;
}

using ConvertFunction = std::uint64_t (*)(std::uint64_t code, CvtModifiers m);

/// convert<D, S> chosen at run time.
ConvertFunction find_convert(Format destination, Format source);

/// The exact value of any format's code, the format chosen at run time.
double decode_value(Format format, std::uint64_t code);

/// The value rounded to an integer in the given direction (cvt.rni.f32.f32 and the like): exact, keeps -0 and infinity.
double round_to_integral(double value, Rounding mode);

}  // namespace tessera::emulator::math
