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
template <char kSign>
struct Vectors4 {
  TESSERA_FOR_AVX2 static __m256d of(const double* a, const double* b, const double*) {
    const __m256d x = _mm256_loadu_pd(a), y = _mm256_loadu_pd(b);
    if constexpr (kSign == '+') return _mm256_add_pd(x, y);
    if constexpr (kSign == '-') return _mm256_sub_pd(x, y);
    if constexpr (kSign == '*') return _mm256_mul_pd(x, y);
    return _mm256_div_pd(x, y);
  }
};
struct Fma4 {
  TESSERA_FOR_AVX2 static __m256d of(const double* a, const double* b, const double* c) {
    return _mm256_fmadd_pd(_mm256_loadu_pd(a), _mm256_loadu_pd(b), _mm256_loadu_pd(c));
  }
};
// F of f64 registers straight into one. Nothing is written before all results are there, and nothing where one of them
// is a NaN: then kAny does it, from sources that the result may take the place of.
template <class F, int kSources, Handler kAny>
TESSERA_FOR_AVX2 Step doubles_avx2(Warp& w, const Instruction& in, Mask active) {
  const double* const a = w.reg<double>(in.op[1].offset);
  const double* const b = w.reg<double>(in.op[2].offset);
  const double* const c = kSources == 3 ? w.reg<double>(in.op[3].offset) : a;
  double* const d = w.reg<double>(in.op[0].offset);
  __m256d results[kLanes / 4];
  __m256d nans = _mm256_setzero_pd();
#pragma GCC unroll 8
  for (int i = 0; i < kLanes / 4; ++i) {
    results[i] = F::of(a + 4 * i, b + 4 * i, c + 4 * i);
    nans = _mm256_or_pd(nans, _mm256_cmp_pd(results[i], results[i], _CMP_UNORD_Q));
  }
  if (_mm256_movemask_pd(nans) != 0) [[unlikely]]
    return kAny(w, in, active);
  if (active == kAllLanes) [[likely]] {
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 4; ++i) _mm256_storeu_pd(d + 4 * i, results[i]);
    return Step::next;
  }
  const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
#pragma GCC unroll 8
  for (int i = 0; i < kLanes / 4; ++i) {
    const __m256i four = _mm256_and_si256(_mm256_set1_epi64x(active >> (4 * i)), bits);
    _mm256_maskstore_pd(d + 4 * i, _mm256_cmpeq_epi64(four, bits), results[i]);
  }
  return Step::next;
}
/// Null: not on this host, or not of these registers.
template <class F, int kSources, Handler kAny>
Handler doubles_of_host(const Decoded& d) {
  if (wide::here == wide::Vectors::none) return nullptr;
  for (int i = 0; i <= kSources; ++i)
    if (d.in->op[i].kind != Operand::Kind::reg || d.in->op[i].bytes != sizeof(double)) return nullptr;
  return doubles_avx2<F, kSources, kAny>;
}
#endif

}  // namespace tessera::emulator::bind
