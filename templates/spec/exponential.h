// 2^x without the special-function unit: range reduction to [-1/2, 1/2] and a polynomial, on the units that multiply
// and add. Attention gives it a share of its exponentials, where that unit would be the limit.
//
//   x = n + f, n the nearest whole number; 2^x = 2^n p(f), p(f) = 1 + f (c1 + ... + c5 f^4)
//
// p is the polynomial of degree 5 with p(0) = 1 whose relative error on [-1/2, 1/2] is least: 2^-23.38. Horner's last
// step rounds by 2^-24 of the result; what the steps before round reaches it times |f| <= 1/2 and c1 = 0.69, in all
// less than 2^-25.5; the product with 2^n is exact. So the error is below 2^-22.4, and within the 2^-22 of ex2.approx;
// a test measures it. Whole x give powers of two exactly, as ex2 does. Below -126 the result is less than 2^-126
// or 0, -infinity gives 0, NaN stays NaN. Precondition: x < 127.
#pragma once

#include "tessera/spec/types.h"

namespace tessera {

// c1 to c5. A function: device code has no arrays of the host.
TESSERA_HD constexpr float exp2_coefficient(int i) {
  switch (i) {
    case 1:
      return 0.693147004f;
    case 2:
      return 0.240222424f;
    case 3:
      return 0.0555073358f;
    case 4:
      return 0.00967151299f;
    default:
      return 0.00132647238f;
  }
}

// 1.5 * 2^23 + 127: adding it leaves in the low bits the nearest whole number n plus 127, which are the exponent's bits
// of 2^n.
inline constexpr float kExp2Round = 12583039.0f;
inline constexpr float kExp2Lowest = -127.0f;

}  // namespace tessera
