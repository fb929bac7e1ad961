// Eight e2m1 values of a word as four pairs of f16, (v[2 i], v[2 i + 1]), on targets that convert them (PTX 8.6) and on
// those that do not.
//
// Without an instruction: e2m1 is sign, two bits of exponent, one of mantissa. Put where f16 has its sign and the
// lowest exponent and highest mantissa bits, they are the number times 2^-14, subnormal ones included, so one exact
// multiplication by 2^14 is all the arithmetic.
#pragma once

#include "ptx/narrow.cuh"
#include "tessera/spec/block_scale.h"

namespace tessera::ptx {

template <Conversion kConversion>
__device__ __forceinline__ void decode_e2m1x8(unsigned word, unsigned (&pairs)[4]) {
  if constexpr (kConversion == Conversion::hardware) {
    cvt_f16x2_e2m1x2_x4(word, pairs);
  } else {
    constexpr unsigned kTwoTo14 = 0x74007400u;
    // The high bytes of f16: of v[0], v[2], v[4], v[6], and of v[1], v[3], v[5], v[7].
    const unsigned even = ((word << 4) & 0x80808080u) | ((word << 1) & 0x0e0e0e0eu);
    const unsigned odd = (word & 0x80808080u) | ((word >> 3) & 0x0e0e0e0eu);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Byte i of even to byte 1, byte i of odd to byte 3; what is left of the others is cleared.
      const unsigned both = prmt(even, odd, static_cast<unsigned>((4 + i) << 12 | i << 4));
      pairs[i] = mul_f16x2(both & 0xff00ff00u, kTwoTo14);
    }
  }
}

}  // namespace tessera::ptx
