// P of 64 keys from scores to the A operand of O = P V: exponentials, the second level's scales, e2m1.
//
// A thread has 8 neighbouring keys of each 32, of rows lane / 4 and 8 further: one register of A each. Two threads have
// the 16 keys under one scale. The scales of a row's four groups are the bytes of one lane's register: lane 4 g has
// those of row g, lane 4 g + 1 those of row g + 8. Groups 0 and 2 are of the quad's first two threads, 1 and 3 of the
// others.
#pragma once

#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "ptx/reciprocal.cuh"
#include "spec/fmha_nvfp4.h"

namespace tessera::fmha_nvfp4 {

struct Probabilities {
  unsigned words[4];
  unsigned scales;
};

// Eight of e2m1, the first in the low bits.
__device__ __forceinline__ unsigned encode_e2m1(const float (&x)[8], float factor) {
  unsigned bytes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bytes[i] = ptx::cvt_e2m1x2(x[2 * i] * factor, x[2 * i + 1] * factor);
  return ptx::prmt(ptx::prmt(bytes[0], bytes[1], 0x0040), ptx::prmt(bytes[2], bytes[3], 0x0040), 0x5410);
}

// What P is multiplied by, from a scale's value. A scale of 0 has values of 0.
__device__ __forceinline__ float factor_of(float scale) { return scale == 0.0f ? 0.0f : ptx::rcp_approx(scale); }

// scores: of 64 keys, 32 of them; subtrahend: of both rows, in the exponent; sums: of both rows, to which P is added.
__device__ __forceinline__ void exponentiate(Probabilities& p, const float* scores, float factor,
                                             const float (&subtrahend)[2], float (&sums)[2]) {
  constexpr float kSixth = 0.16666667f;
  unsigned codes[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float x[2][8], largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float score = scores[16 * half + e / 2 * 4 + 2 * row + e % 2];
        x[half][e] = ptx::ex2(fmaf(score, factor, -subtrahend[row]));
      }
      float of_pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of_pairs[i] = fmaxf(x[half][2 * i], x[half][2 * i + 1]);
        sums[row] += x[half][2 * i] + x[half][2 * i + 1];
      }
      largest[half] = fmaxf(fmaxf(of_pairs[0], of_pairs[1]), fmaxf(of_pairs[2], of_pairs[3]));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xffffffff, largest[half], 1));
    codes[row] = ptx::cvt_e4m3x2(largest[0] * kSixth, largest[1] * kSixth);
    const unsigned scales = ptx::cvt_f16x2_e4m3x2(codes[row]);
    p.words[row] = encode_e2m1(x[0], factor_of(ptx::f32_of_low_f16(scales)));
    p.words[2 + row] = encode_e2m1(x[1], factor_of(ptx::f32_of_high_f16(scales)));
  }
  // Own groups of both rows, and those of the quad's other half.
  const unsigned own = codes[0] | codes[1] << 16, other = __shfl_xor_sync(0xffffffff, own, 2);
  p.scales = ptx::prmt(own, other, threadIdx.x % 2 == 0 ? 0x5140 : 0x7362);
}

}  // namespace tessera::fmha_nvfp4
