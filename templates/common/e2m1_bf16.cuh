// Codes of e2m1 and of ue8m0 as bf16, by integer arithmetic: for every target.
//
// A code of e2m1 with its bits moved to where bf16 has sign, exponent and mantissa is the number times 2^-126,
// subnormal ones included. Nibble j of a word's halves is element j of eight and element j + 4. A product with two
// powers of two brings a pair's signs and magnitudes to their places at once, by an instruction that does not run where
// masks and shifts do.
#pragma once

namespace tessera::common {

// A code of ue8m0 as bf16: below its normal numbers 2^-127, and NaN.
__device__ __forceinline__ unsigned bf16_of_ue8m0(unsigned code) {
  return code == 0 ? 0x0040u : code == 0xff ? 0x7fc0u : code << 7;
}

// Eight codes as pairs (j, j + 4), times 2^-126.
__device__ __forceinline__ void lowered_pairs(unsigned word, unsigned (&pairs)[4]) {
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const unsigned halves = j == 0 ? word : word >> 8;
    pairs[j] = (halves & 0x000f000f) * 0x1040 & 0x81c081c0;
    pairs[j + 1] = (halves & 0x00f000f0) * 0x0104 & 0x81c081c0;
  }
}

}  // namespace tessera::common
