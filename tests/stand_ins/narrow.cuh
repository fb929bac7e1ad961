// Stands in for ptx/narrow.cuh's conversions to and from e2m1 on targets that have none.
namespace tessera::ptx {
namespace stand_in {

// Nearest even, saturating: sixteen boundaries of magnitudes 0.25, 0.75, ... of which ties go to the even code. NaN is
// the largest.
__device__ __forceinline__ unsigned e2m1_of(float x) {
  const float m = fabsf(x);
  const unsigned sign = __float_as_uint(x) >> 31 << 3;
  if (!(m <= 5.0f)) return m != m ? 7u : sign | 7u;
  const unsigned code = m <= 0.25f   ? 0u
                        : m < 0.75f  ? 1u
                        : m <= 1.25f ? 2u
                        : m < 1.75f  ? 3u
                        : m <= 2.5f  ? 4u
                        : m < 3.5f   ? 5u
                                     : 6u;
  return sign | code;
}

}  // namespace stand_in

__device__ __noinline__ unsigned cvt_e2m1x2(float low, float high) {
  return stand_in::e2m1_of(low) | stand_in::e2m1_of(high) << 4;
}

__device__ __forceinline__ void cvt_f16x2_e2m1x2_x4(unsigned word, unsigned (&halves)[4]) {
  // Magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 in f16: their upper bytes, the lower ones are 0.
  constexpr unsigned long long kUpper = 0x46444240'3e3c3800ull;
  for (int i = 0; i < 4; ++i) {
    unsigned both = 0;
    for (int j = 0; j < 2; ++j) {
      const unsigned code = word >> (8 * i + 4 * j) & 15;
      both |= (static_cast<unsigned>(kUpper >> (code & 7) * 8 & 0xff) | (code & 8) << 4) << (16 * j + 8);
    }
    halves[i] = both;
  }
}

}  // namespace tessera::ptx
