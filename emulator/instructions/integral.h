// cvt of f32 to integral values, as a few operations that vectors have. What they give is float_to_integer()'s and
// round_to_integral()'s (math/).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "emulator/math/bits.h"
#include "emulator/math/convert.h"

namespace tessera::emulator::bind {

/// cvt.rzi of f32 to 32 bits: clamped, a NaN is 0. From 2^31 on a vector's conversion, which is signed, is of the rest.
template <class To>
struct TowardZero {
  To operator()(float a) const {
    constexpr float kHalf = 2147483648.0f;
    if constexpr (std::is_signed_v<To>) {
      const float inside = a < kHalf && a > -kHalf ? a : 0.0f;
      const To outside = a >= kHalf ? std::numeric_limits<To>::max() : a <= -kHalf ? std::numeric_limits<To>::min() : 0;
      return outside != 0 ? outside : static_cast<To>(inside);
    } else {
      const float low = a > 0.0f && a < kHalf ? a : 0.0f;
      const float high = a >= kHalf && a < 2 * kHalf ? a - kHalf : 0.0f;
      const To inside = a >= kHalf ? static_cast<To>(static_cast<std::int32_t>(high)) + 0x80000000u
                                   : static_cast<To>(static_cast<std::int32_t>(low));
      return a >= 2 * kHalf ? std::numeric_limits<To>::max() : inside;
    }
  }
};
/// An f32 without a fraction. Below 2^23 the sum with 2^23 rounds to nearest, and a 32-bit integer holds what is cut.
template <math::Rounding kMode>
struct Integral {
  std::uint32_t operator()(std::uint32_t a) const {
    constexpr std::uint32_t kWhole = 0x4B000000;  // 2^23
    const std::uint32_t magnitude = a & 0x7FFFFFFF, sign = a & 0x80000000;
    const auto value = std::bit_cast<float>(magnitude < kWhole ? magnitude : 0);
    float whole = 0;
    if constexpr (kMode == math::Rounding::nearest_even) {
      whole = (value + 0x1p23f) - 0x1p23f;
    } else {
      whole = static_cast<float>(static_cast<std::int32_t>(value));
      constexpr std::uint32_t kGrows = kMode == math::Rounding::down ? 0x80000000 : 0;
      if constexpr (kMode != math::Rounding::toward_zero) whole += (sign == kGrows) & (whole < value) ? 1.0f : 0.0f;
    }
    const std::uint32_t result = (magnitude < kWhole ? std::bit_cast<std::uint32_t>(whole) : magnitude) | sign;
    return magnitude > math::kInfinityF32 ? math::kCanonicalNanF32 : result;
  }
};
template <class To, math::Rounding kMode>
struct IntegralTo {
  To operator()(std::uint32_t a) const { return TowardZero<To>{}(std::bit_cast<float>(Integral<kMode>{}(a))); }
};

}  // namespace tessera::emulator::bind
