// Arithmetic of 32 lanes as the host's own instructions do it, which are IEEE and round to nearest; where a NaN comes
// out of f64, PTX has rules of its own and the caller goes another way.
#pragma once

#include <bit>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "emulator/instructions/wide.h"
#include "emulator/math/bits.h"

namespace tessera::emulator::bind {

/// False: some lane's result is a NaN.
template <class F>
[[gnu::always_inline]] inline bool near_doubles_here(const double* a, const double* b, double* d) {
  std::uint64_t nans = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    d[lane] = F::near(a[lane], b[lane]);
    nans |= d[lane] != d[lane] ? std::uint64_t{1} : std::uint64_t{0};
  }
  return nans == 0;
}
#if defined(__x86_64__)
template <class F>
TESSERA_FOR_AVX2 bool near_doubles_avx2(const double* a, const double* b, double* d) {
  return near_doubles_here<F>(a, b, d);
}
template <class F>
bool near_doubles(const double* a, const double* b, double* d) {
  return wide::here != wide::Vectors::none ? near_doubles_avx2<F>(a, b, d) : near_doubles_here<F>(a, b, d);
}
#else
template <class F>
bool near_doubles(const double* a, const double* b, double* d) {
  return near_doubles_here<F>(a, b, d);
}
#endif

/// min and max of f64: where one is a NaN, so is the sum.
template <bool kMax>
struct NearMinMax {
  // -0 is below +0: where the values are equal the bit patterns decide.
  static double near(double a, double b) {
    const auto ab = std::bit_cast<std::uint64_t>(a), bb = std::bit_cast<std::uint64_t>(b);
    const auto equal = std::bit_cast<double>(kMax ? ab & bb : ab | bb);
    const double ordered = (kMax ? a > b : a < b) ? a : b;
    return a == b ? equal : a != a || b != b ? a + b : ordered;
  }
};

#if defined(__x86_64__)
TESSERA_FOR_AVX2 inline void sqrt_floats(const float* a, float* d) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(math::kCanonicalNanF32)));
  for (int lane = 0; lane < kLanes; lane += 8) {
    const __m256 root = _mm256_sqrt_ps(_mm256_loadu_ps(a + lane));
    _mm256_storeu_ps(d + lane, _mm256_blendv_ps(root, nan, _mm256_cmp_ps(root, root, _CMP_UNORD_Q)));
  }
}
TESSERA_FOR_AVX2 inline bool sqrt_doubles(const double* a, double* d) {
  int nans = 0;
  for (int lane = 0; lane < kLanes; lane += 4) {
    const __m256d root = _mm256_sqrt_pd(_mm256_loadu_pd(a + lane));
    _mm256_storeu_pd(d + lane, root);
    nans |= _mm256_movemask_pd(_mm256_cmp_pd(root, root, _CMP_UNORD_Q));
  }
  return nans == 0;
}
// False: some lane's result is a NaN.
TESSERA_FOR_AVX2 inline bool fma_doubles(const double* a, const double* b, const double* c, double* d) {
  unsigned nans = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    d[lane] = __builtin_fma(a[lane], b[lane], c[lane]);
    nans |= d[lane] != d[lane] ? 1u : 0u;
  }
  return nans == 0;
}
#endif

}  // namespace tessera::emulator::bind
