// NVFP4's factor of a whole tensor, and what follows from it for each block.
#pragma once

#include "quantize/elements.cuh"
#include "quantize/scale.cuh"

namespace tessera::quantize {

// What is the same for all blocks of nvfp4.
struct Unit {
  float g = 1;
  float unit = 6;
  float reciprocal = 0;
  bool is_regular = false;  // no step of a division under- or overflows
};

__device__ __forceinline__ Unit unit_of_scale(float g) {
  const float unit = __fmul_rn(6.0f, g);
  return {g, unit, __frcp_rn(unit), g >= 0x1p-80f && g <= 0x1p80f};
}

// amax / (6 g), for which regular units need no division of their own. Any g: also 0, negative, infinite, NaN.
__device__ __forceinline__ float scale_quotient(float amax, Unit u) {
  const float most = fminf(amax, largest_float());
  return u.is_regular ? divide_by_unit(most, u.unit, u.reciprocal) : __fdiv_rn(most, u.unit);
}

// The scale's code of an nvfp4 block, and what its values are divided by: 0 makes them zeros. kIsOne: g is 1.
template <bool kIsOne>
__device__ __forceinline__ float divisor_nvfp4(float amax, Unit u, unsigned& code) {
  code = u.unit == 0 ? 0 : ue4m3_code(kIsOne ? sixth(fminf(amax, largest_float())) : scale_quotient(amax, u));
  return kIsOne ? ue4m3_value(code) : __fmul_rn(ue4m3_value(code), u.g);
}

}  // namespace tessera::quantize
