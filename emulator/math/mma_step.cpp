// 128-bit integers throughout: terms are brought to a common unit and cut there, as the model says, and the sum is
// rounded once.
#include "emulator/math/mma_step.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "emulator/math/convert.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/half_arithmetic.h"

namespace tessera::emulator::math {
namespace {

// negative ? -1 : 1 times significand * 2^(exponent - fraction); exponent is the one that alignment looks at.
struct Term {
  bool negative;
  int exponent;
  std::int64_t significand;
  int fraction;
};

// What a step collects: finite nonzero terms, and whether anything special took part.
struct Terms {
  std::vector<Term> finite;
  bool nan = false;
  bool plus_infinity = false;
  bool minus_infinity = false;

  void infinity(bool negative) { (negative ? minus_infinity : plus_infinity) = true; }

  void product(const Unpacked& x, const Unpacked& y, int scale_exponent) {
    const bool negative = x.negative != y.negative;
    const bool any_nan = x.kind == NumberClass::nan || y.kind == NumberClass::nan;
    const bool any_infinity = x.kind == NumberClass::infinity || y.kind == NumberClass::infinity;
    const bool any_zero = x.kind == NumberClass::zero || y.kind == NumberClass::zero;
    if (any_nan || (any_infinity && any_zero)) {
      nan = true;
    } else if (any_infinity) {
      infinity(negative);
    } else if (!any_zero) {
      finite.push_back({negative, x.exponent + y.exponent + scale_exponent,
                        static_cast<std::int64_t>(x.significand * y.significand),
                        x.exponent - x.lsb + y.exponent - y.lsb});
    }
  }

  void accumulator(const Unpacked& c) {
    if (c.kind == NumberClass::nan) nan = true;
    if (c.kind == NumberClass::infinity) infinity(c.negative);
    if (c.kind == NumberClass::finite)
      finite.push_back({c.negative, c.exponent, static_cast<std::int64_t>(c.significand), c.exponent - c.lsb});
  }
};

std::uint32_t finish(MmaResult result, Int128 sum, int lsb) {
  const bool negative = sum < 0;
  const auto magnitude = static_cast<Uint128>(negative ? -sum : sum);
  const bool half = result == MmaResult::f16;
  const FormatInfo format = info_of(half ? Format::f16 : Format::f32);
  const Rounding mode = half ? Rounding::nearest_even : Rounding::toward_zero;
  auto code = static_cast<std::uint32_t>(pack(format, negative, magnitude, lsb, mode));
  // Cutting stops at the largest float; the unit goes on to infinity.
  if (!half && (code & 0x7FFFFFFF) == 0x7F7FFFFF && lsb + bit_width(magnitude) > 128) ++code;
  if (result == MmaResult::f32_13) code &= ~std::uint32_t{0x3FF};
  return (code & (half ? 0x7FFF : 0x7FFFFFFF)) == 0 ? 0 : code;
}

std::uint32_t run_step(MmaResult result, int fraction_bits, const Terms& terms) {
  const bool half = result == MmaResult::f16;
  if (terms.nan || (terms.plus_infinity && terms.minus_infinity)) return half ? kCanonicalNan16 : kCanonicalNanF32;
  if (terms.plus_infinity) return half ? 0x7C00 : 0x7F800000;
  if (terms.minus_infinity) return half ? 0xFC00 : 0xFF800000;
  if (terms.finite.empty()) return 0;
  int largest = terms.finite.front().exponent;
  for (const Term& t : terms.finite) largest = std::max(largest, t.exponent);
  Int128 sum = 0;
  for (const Term& t : terms.finite) {
    const int up = fraction_bits - t.fraction - (largest - t.exponent);  // to units of 2^(largest - F)
    const Int128 significand = t.significand;
    const Int128 cut = up >= 0 ? significand << up : up > -120 ? significand >> -up : 0;
    sum += t.negative ? -cut : cut;
  }
  return finish(result, sum, largest - fraction_bits);
}

Unpacked unpack_accumulator(MmaResult result, std::uint32_t c) {
  return result == MmaResult::f16 ? unpack(info_of(Format::f16), c & 0xFFFF) : unpack(info_of(Format::f32), c);
}

// The exponent that a pair of ue8m0 scales adds; nothing for a NaN scale.
std::optional<int> scale_exponent(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b, std::size_t block) {
  if (a.empty()) return 0;
  if (a[block] == 0xFF || b[block] == 0xFF) return std::nullopt;
  return a[block] + b[block] - 2 * 127;
}

}  // namespace

std::uint32_t mma_output(const MmaPath& path, Format a_format, Format b_format, std::span<const std::uint32_t> a,
                         std::span<const std::uint32_t> b, std::uint32_t c, std::span<const std::uint8_t> a_scales,
                         std::span<const std::uint8_t> b_scales) {
  const auto element = [&path](Format format, std::uint32_t code) {
    if (path.pairs_split) return unpack(info_of(Format::f16), widen_fp8(format, code));
    return unpack(info_of(format), code >> container_shift(format));
  };
  const auto group = static_cast<std::size_t>(path.group);
  std::uint32_t running = path.pairs_split ? 0 : c;
  for (std::size_t first = 0; first < a.size(); first += group) {
    Terms terms;
    for (std::size_t i = first; i < std::min(first + group, a.size()); ++i) {
      std::size_t k = i;
      if (path.pairs_split) {
        const std::size_t half = a.size() / 2;
        k = i % half / 2 * 4 + i % 2 + 2 * (i / half);
      }
      const std::optional<int> shift = scale_exponent(a_scales, b_scales, k / 32);
      if (shift)
        terms.product(element(a_format, a[k]), element(b_format, b[k]), *shift);
      else
        terms.nan = true;
    }
    terms.accumulator(unpack_accumulator(path.result, running));
    running = run_step(path.result, path.fraction_bits, terms);
  }
  return path.pairs_split ? add_last(path.result, running, c) : running;
}

std::uint32_t widen_fp8(Format format, std::uint32_t code) {
  return static_cast<std::uint32_t>(find_convert(Format::f16, format)(code, {}));
}

std::uint32_t add_last(MmaResult result, std::uint32_t sum, std::uint32_t c) {
  if (result == MmaResult::f16) return half_add<Format::f16>(sum, c & 0xFFFF);
  return bits_of(add(float_of(sum), float_of(c)));
}

std::uint32_t fp4_output(const Fp4Path& path, Format scale_format, int scale_block, std::span<const std::uint32_t> a,
                         std::span<const std::uint32_t> b, std::span<const std::uint8_t> a_scales,
                         std::span<const std::uint8_t> b_scales, std::uint32_t c) {
  // A scale as significand and exponent: ue8m0 is a power of two, ue4m3 has a significand of four bits.
  const auto scale = [scale_format](std::uint8_t code) {
    if (scale_format == Format::ue4m3) return unpack(info_of(Format::ue4m3), code);
    Unpacked u{NumberClass::finite, false, 1, code - 127, code - 127};
    if (code == 0xFF) u.kind = NumberClass::nan;
    return u;
  };
  Terms terms;
  for (std::size_t first = 0; first < a.size(); first += 16) {
    std::int64_t sum = 0;  // in quarters: e2m1 values are multiples of a half
    for (std::size_t k = first; k < first + 16; ++k)
      sum += static_cast<std::int64_t>(4 * decode<Format::e2m1>(a[k]) * decode<Format::e2m1>(b[k]));
    const std::size_t block = first / static_cast<std::size_t>(scale_block);
    const Unpacked x = scale(a_scales[block]);
    const Unpacked y = scale(b_scales[block]);
    if (x.kind == NumberClass::nan || y.kind == NumberClass::nan) terms.nan = true;
    const auto scales = static_cast<std::int64_t>(x.significand * y.significand);
    if (sum == 0 || scales == 0) continue;
    terms.finite.push_back({sum < 0, x.exponent + y.exponent, (sum < 0 ? -sum : sum) * scales,
                            2 + x.exponent - x.lsb + y.exponent - y.lsb});
  }
  terms.accumulator(unpack_accumulator(MmaResult::f32, c));
  return run_step(MmaResult::f32, path.fraction_bits, terms);
}

}  // namespace tessera::emulator::math
