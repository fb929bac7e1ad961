// The fp32 factor of a block of e4m3 numbers: spec/quantize_blocks.h has the formula.
#pragma once

#include "tessera/spec/operand_type.h"

namespace tessera::quantize {

// Of a block whose largest magnitude is amax; `inverse`: what its elements are multiplied by.
template <ScaleValues kValues>
__device__ __forceinline__ float block_factor(float amax, float& inverse) {
  const float most = fminf(fmaxf(amax, 1e-4f), __uint_as_float(0x7f7fffffu));
  if constexpr (kValues == ScaleValues::pow2) {
    // 448 = 1.75 * 2^8: a magnitude above 1.75 2^i needs the next power.
    const unsigned exponent = ((__float_as_uint(most) + (0x7fffffu - 0x600000u)) >> 23) - 8;
    inverse = __uint_as_float((254u - exponent) << 23);
    return __uint_as_float(exponent << 23);
  } else {
    const float factor = __fdiv_rn(most, 448.0f);
    inverse = __frcp_rn(factor);
    return factor;
  }
}

}  // namespace tessera::quantize
