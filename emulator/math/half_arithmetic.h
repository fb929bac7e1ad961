// f16 and bf16 arithmetic, one value and packed pairs, each operation with a single rounding to the nearest even.
//
// Operands are exact in double, so are products (22 bits); a sum is rounded to odd in double and once more to the
// format (see float_arithmetic.h). NaN results are 0x7FFF. Subnormals are kept except with .ftz (f16 only; bf16 has no
// .ftz and keeps them).
#pragma once

#include "emulator/math/float_arithmetic.h"

namespace tessera::emulator::math {

/// F is Format::f16 or Format::bf16 in all of these.
struct HalfModifiers {
  bool ftz = false;
  bool sat = false;   ///< clamp to [0, 1], NaN becomes +0
  bool relu = false;  ///< fma only: negative results become +0, NaN stays NaN
};

template <Format F>
std::uint32_t half_add(std::uint32_t a, std::uint32_t b, HalfModifiers m = {});
template <Format F>
std::uint32_t half_sub(std::uint32_t a, std::uint32_t b, HalfModifiers m = {});
template <Format F>
std::uint32_t half_mul(std::uint32_t a, std::uint32_t b, HalfModifiers m = {});
template <Format F>
std::uint32_t half_fma(std::uint32_t a, std::uint32_t b, std::uint32_t c, HalfModifiers m = {});
template <Format F>
std::uint32_t half_min(std::uint32_t a, std::uint32_t b, MinMaxModifiers m = {});
template <Format F>
std::uint32_t half_max(std::uint32_t a, std::uint32_t b, MinMaxModifiers m = {});

/// Without modifiers, of many values at once (a multiple of eight); d may be a, b or c.
enum class HalfOperation : std::uint8_t { fma, add, sub, mul };
template <Format F, HalfOperation kOperation>
void half_lanes(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c, std::uint16_t* d, int count);

/// Sign flip and sign removal as bit operations; the instructions neg and abs make a NaN the canonical one besides.
constexpr std::uint32_t half_neg(std::uint32_t a) { return (a ^ 0x8000) & 0xFFFF; }
constexpr std::uint32_t half_abs(std::uint32_t a) { return a & 0x7FFF; }

/// Any of the functions above on both halves of a packed pair: on_pairs(half_add<Format::f16>, a, b, m).
template <class Modifiers>
std::uint32_t on_pairs(std::uint32_t (*f)(std::uint32_t, std::uint32_t, Modifiers), std::uint32_t a, std::uint32_t b,
                       Modifiers m) {
  return f(a >> 16, b >> 16, m) << 16 | f(a & 0xFFFF, b & 0xFFFF, m);
}
template <class Modifiers>
std::uint32_t on_pairs(std::uint32_t (*f)(std::uint32_t, std::uint32_t, std::uint32_t, Modifiers), std::uint32_t a,
                       std::uint32_t b, std::uint32_t c, Modifiers m) {
  return f(a >> 16, b >> 16, c >> 16, m) << 16 | f(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF, m);
}

}  // namespace tessera::emulator::math
