// Numbers as the kernels store them: bits of an element type to double and back, rounded to nearest even in one step
// (never through a second format, so that no double rounding creeps in).
//
// f16 and e5m2 follow IEEE 754 with infinities; e4m3 has none: what lies above 448 by more than half a step becomes its
// NaN. tf32 is fp32 with ten mantissa bits. Integers are rounded to nearest even and clamped to their range.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/spec/types.h"

namespace tessera::reference {

/// Value of the element whose bits stand in the low dtype_bytes(dtype) bytes.
double to_double(DType dtype, std::uint64_t bits);
/// Bits of the nearest representable value.
std::uint64_t from_double(DType dtype, double value);

/// Significand bits with the hidden one (bf16 8, f16 11, f32 24); 0 for integers.
int precision(DType dtype);
/// Largest relative error of one rounding to nearest of a normal number: 2^-precision.
double unit_roundoff(DType dtype);
/// That of fp32, in which the kernels add and multiply.
inline constexpr double kU = 0x1p-24;

/// What the root of ln(1 + e^x) errs by at most where e^-|x| is a denormal number, rounded to 2^-149.
inline double softplus_root_slack(double softplus) {
  const double root = std::sqrt(softplus);
  return std::max(root - std::sqrt(std::max(softplus - 0x1p-149, 0.0)), std::sqrt(softplus + 0x1p-149) - root);
}
/// Half the spacing of subnormal numbers: the largest absolute error of rounding a tiny one.
double half_subnormal(DType dtype);

/// "bf16", "f32", ...: the spelling of flags and JSON.
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace tessera::reference
