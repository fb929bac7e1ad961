// add, mul, fma, div, rcp, sqrt, min, max for f32 and f64 with PTX's rounding directions, without touching the host's
// floating-point environment.
//
// f32: a sum, product or fused product-sum of floats is formed in double. Products are exact there (48 of 53 bits); a
// sum that is not exact is rounded to odd: its last bit is set whenever something was cut off, so that the one rounding
// to 24 bits that follows goes as if the sum had been exact (53 >= 24 + 2). f64 in a directed mode goes through 128-bit
// integers instead. Round-to-nearest uses the host's own instructions, which are IEEE.
//
// NaN: f32 results are 0x7FFFFFFF; an f64 result is a NaN operand made quiet, of several b before c before a (H200), or
// 0xFFF8000000000000 for an invalid operation.
// .ftz flushes subnormal operands, and results that are tiny before they are rounded, to the zero of their sign (H200).
#pragma once

#include "emulator/math/float_format.h"

namespace tessera::emulator::math {

struct ArithmeticModifiers {
  Rounding rounding = Rounding::nearest_even;
  bool ftz = false;  ///< f32 only
  bool sat = false;  ///< clamp to [0, 1], NaN becomes +0
};

/// Round to nearest, no modifier: short enough for loops over lanes, which the compiler vectorises.
inline float add_nearest(float a, float b);
inline float mul_nearest(float a, float b);
inline float fma_nearest(float a, float b, float c);

float add(float a, float b, ArithmeticModifiers m = {});
float sub(float a, float b, ArithmeticModifiers m = {});
float mul(float a, float b, ArithmeticModifiers m = {});
/// a * b + c with one rounding: fma, and mad on sm_20 and later.
float fma(float a, float b, float c, ArithmeticModifiers m = {});
/// div.rn/rz/rm/rp, rcp.rn/.., sqrt.rn/..: correctly rounded.
float div(float a, float b, ArithmeticModifiers m = {});
float rcp(float a, ArithmeticModifiers m = {});
float sqrt(float a, ArithmeticModifiers m = {});

double add(double a, double b, Rounding mode = Rounding::nearest_even);
double sub(double a, double b, Rounding mode = Rounding::nearest_even);
double mul(double a, double b, Rounding mode = Rounding::nearest_even);
double fma(double a, double b, double c, Rounding mode = Rounding::nearest_even);
double div(double a, double b, Rounding mode = Rounding::nearest_even);
double rcp(double a, Rounding mode = Rounding::nearest_even);
double sqrt(double a, Rounding mode = Rounding::nearest_even);

struct MinMaxModifiers {
  bool ftz = false;          ///< f32 only
  bool nan = false;          ///< .NaN: a NaN operand gives the canonical NaN; else the other operand wins
  bool xorsign_abs = false;  ///< operate on magnitudes, the sign is the XOR of the operands' signs
};

/// +0 is larger than -0; both operands NaN give the canonical NaN.
float min(float a, float b, MinMaxModifiers m = {});
float max(float a, float b, MinMaxModifiers m = {});
double min(double a, double b);
double max(double a, double b);

/// The double nearest to x + y with its last bit set when the sum is not exact: a later rounding to at most 51 bits
/// goes as if the sum had been exact.
inline double sum_to_odd(double x, double y) {
  const double sum = x + y;
  const double y_seen = sum - x;  // what the addition made of y, and of x; the differences are exact
  const double error = (x - (sum - y_seen)) + (y - y_seen);
  const std::uint64_t bits = bits_of(sum);
  // The exact sum lies between an even double and its odd neighbour on the error's side. NaN: infinite terms.
  const bool moves = error != 0.0 && error == error && (bits & 1) == 0;
  const bool away_from_zero = ((bits_of(error) ^ bits) >> 63) == 0;
  const std::uint64_t step = away_from_zero ? 1 : ~std::uint64_t{0};
  return double_of(bits + (moves ? step : 0));
}

/// Any NaN becomes the canonical one.
inline float canonical_nan(float value) { return value != value ? float_of(kCanonicalNanF32) : value; }

inline float add_nearest(float a, float b) { return canonical_nan(a + b); }
inline float mul_nearest(float a, float b) { return canonical_nan(a * b); }
inline float fma_nearest(float a, float b, float c) {
  return canonical_nan(static_cast<float>(sum_to_odd(static_cast<double>(a) * static_cast<double>(b), c)));
}

}  // namespace tessera::emulator::math
