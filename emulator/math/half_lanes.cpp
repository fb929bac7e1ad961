// f16 and bf16 arithmetic of many values at once, eight in a step, with the results that half_arithmetic.cpp has one by
// one: operands and products are exact in double, a sum is rounded to odd there and again to odd in f32, whose 24 bits
// leave the one rounding to the format right. What f32 has no normal number for is done one by one.
//
// Of f16, products are exact in f32 too, and a sum rounded to f32 and then to f16 is right unless it came to lie where
// f16's values and the midpoints between them do: only there the sum must be exact, or eight go the way above.
#include "emulator/math/half_arithmetic.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::emulator::math {
namespace {

template <Format F>
std::uint16_t one_of(HalfOperation operation, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  switch (operation) {
    case HalfOperation::fma:
      return static_cast<std::uint16_t>(half_fma<F>(a, b, c));
    case HalfOperation::add:
      return static_cast<std::uint16_t>(half_add<F>(a, b));
    case HalfOperation::sub:
      return static_cast<std::uint16_t>(half_sub<F>(a, b));
    case HalfOperation::mul:
      return static_cast<std::uint16_t>(half_mul<F>(a, b));
  }
  return 0;
}

#if defined(__x86_64__)
#define TESSERA_AVX2 [[gnu::target("avx2,f16c"), gnu::always_inline]] inline

template <Format F>
TESSERA_AVX2 __m256 widen(const std::uint16_t* from) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (F == Format::f16) return _mm256_cvtph_ps(codes);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
}

// math::sum_to_odd
TESSERA_AVX2 __m256d sum_to_odd(__m256d x, __m256d y) {
  const __m256d sum = _mm256_add_pd(x, y), seen = _mm256_sub_pd(sum, x);
  const __m256d error = _mm256_add_pd(_mm256_sub_pd(x, _mm256_sub_pd(sum, seen)), _mm256_sub_pd(y, seen));
  const __m256i one = _mm256_set1_epi64x(1);
  const __m256i is_even = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_castpd_si256(sum), one), _mm256_setzero_si256());
  const __m256d differs = _mm256_cmp_pd(error, _mm256_setzero_pd(), _CMP_NEQ_OQ);  // a NaN does not
  const __m256i moves = _mm256_and_si256(_mm256_castpd_si256(differs), is_even);
  // One up where the error has the sum's sign, one down where it has not: 1 or -1.
  const __m256i opposite =
      _mm256_srli_epi64(_mm256_xor_si256(_mm256_castpd_si256(error), _mm256_castpd_si256(sum)), 63);
  const __m256i step = _mm256_sub_epi64(one, _mm256_add_epi64(opposite, opposite));
  return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(sum), _mm256_and_si256(moves, step)));
}

// To f32, rounded to odd: right where the result is a normal number of f32, or 0, infinite or a NaN.
TESSERA_AVX2 __m128 narrow_to_odd(__m256d value) {
  const __m256i bits = _mm256_castpd_si256(value), cut = _mm256_set1_epi64x((1ll << 29) - 1);
  const __m256i is_exact = _mm256_cmpeq_epi64(_mm256_and_si256(bits, cut), _mm256_setzero_si256());
  const __m256i sticky = _mm256_andnot_si256(is_exact, _mm256_set1_epi64x(1ll << 29));
  return _mm256_cvtpd_ps(_mm256_castsi256_pd(_mm256_or_si256(_mm256_andnot_si256(cut, bits), sticky)));
}

template <HalfOperation kOperation>
TESSERA_AVX2 __m128 four(__m128 a, __m128 b, __m128 c) {
  const __m256d x = _mm256_cvtps_pd(a), y = _mm256_cvtps_pd(b);
  if constexpr (kOperation == HalfOperation::fma)
    return narrow_to_odd(sum_to_odd(_mm256_mul_pd(x, y), _mm256_cvtps_pd(c)));
  if constexpr (kOperation == HalfOperation::add) return narrow_to_odd(sum_to_odd(x, y));
  if constexpr (kOperation == HalfOperation::sub)
    return narrow_to_odd(sum_to_odd(x, _mm256_xor_pd(y, _mm256_set1_pd(-0.0))));
  return narrow_to_odd(_mm256_mul_pd(x, y));
}

// Eight of f16 by way of f32; false: some are not right this way.
//
// f32 holds products (22 bits, at least 2^-48 or 0). A sum has no more than 24 bits there; f16's values and the
// midpoints between two of them, subnormals too, leave the lowest 12 of them 0, so another sum lies on the same side of
// every midpoint as the exact one. The larger term's difference to the sum is exact: that both give the other term
// back says that the sum is exact. Infinite and NaN sums have those bits 0 and fail it.
template <HalfOperation kOperation>
TESSERA_AVX2 bool eight_of_f16(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c, __m128i& codes) {
  const __m256 x = widen<Format::f16>(a), y = widen<Format::f16>(b);
  constexpr bool kIsProduct = kOperation == HalfOperation::fma || kOperation == HalfOperation::mul;
  const __m256 first = kIsProduct ? _mm256_mul_ps(x, y) : x;
  __m256 value = first;
  if constexpr (kOperation == HalfOperation::mul) {
    if (_mm256_movemask_ps(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)) != 0) return false;
  } else {
    __m256 second = y;
    if constexpr (kOperation == HalfOperation::fma) second = widen<Format::f16>(c);
    if constexpr (kOperation == HalfOperation::sub) second = _mm256_xor_ps(y, _mm256_set1_ps(-0.0f));
    value = _mm256_add_ps(first, second);
    const __m256i low = _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0xFFF));
    const __m256 is_near = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, _mm256_setzero_si256()));
    const __m256 differs = _mm256_or_ps(_mm256_cmp_ps(_mm256_sub_ps(value, first), second, _CMP_NEQ_UQ),
                                        _mm256_cmp_ps(_mm256_sub_ps(value, second), first, _CMP_NEQ_UQ));
    if (_mm256_testz_ps(is_near, differs) == 0) return false;
  }
  codes = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  return true;
}

template <Format F, HalfOperation kOperation>
[[gnu::target("avx2,f16c")]] void lanes_avx2(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c,
                                             std::uint16_t* d, int count) {
  const __m256i magnitude_of = _mm256_set1_epi32(0x7FFFFFFF);
  for (int i = 0; i < count; i += 8) {
    if constexpr (F == Format::f16) {
      __m128i codes;
      if (eight_of_f16<kOperation>(a + i, b + i, c + i, codes)) [[likely]] {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(d + i), codes);
        continue;
      }
    }
    const __m256 x = widen<F>(a + i), y = widen<F>(b + i);
    const __m256 z = kOperation == HalfOperation::fma ? widen<F>(c + i) : _mm256_setzero_ps();
    const __m128 low =
        four<kOperation>(_mm256_castps256_ps128(x), _mm256_castps256_ps128(y), _mm256_castps256_ps128(z));
    const __m128 high =
        four<kOperation>(_mm256_extractf128_ps(x, 1), _mm256_extractf128_ps(y, 1), _mm256_extractf128_ps(z, 1));
    const __m256 value = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
    const __m256i bits = _mm256_castps_si256(value), magnitude = _mm256_and_si256(bits, magnitude_of);
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
    int rest = 0;  // done one by one
    __m128i codes;
    if constexpr (F == Format::f16) {
      codes = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    } else {
      // Below f32's normal numbers, and its largest binade, which overflows by more than one rounding.
      const __m256i is_zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
      const __m256i is_small =
          _mm256_andnot_si256(is_zero, _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude));
      const __m256i is_large = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7EFFFFFF));
      rest = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(is_small, is_large)));
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i rounded =
          _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
      codes = _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    }
    const __m128i nans = _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
    codes = _mm_blendv_epi8(codes, _mm_set1_epi16(0x7FFF), nans);
    std::uint16_t apart[8] = {};
    for (int bad = rest; bad != 0; bad &= bad - 1) {
      const int at = __builtin_ctz(static_cast<unsigned>(bad));
      const std::uint32_t added = kOperation == HalfOperation::fma ? c[i + at] : 0u;
      apart[at] = one_of<F>(kOperation, a[i + at], b[i + at], added);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(d + i), codes);
    for (int bad = rest; bad != 0; bad &= bad - 1) {
      const int at = __builtin_ctz(static_cast<unsigned>(bad));
      d[i + at] = apart[at];
    }
  }
}

const bool kHasVectors = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
#endif

}  // namespace

template <Format F, HalfOperation kOperation>
void half_lanes(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c, std::uint16_t* d, int count) {
#if defined(__x86_64__)
  if (kHasVectors) return lanes_avx2<F, kOperation>(a, b, c, d, count);
#endif
  for (int i = 0; i < count; ++i)
    d[i] = one_of<F>(kOperation, a[i], b[i], kOperation == HalfOperation::fma ? c[i] : 0u);
}

#define TESSERA_FOR(F, operation)                                                                          \
  template void half_lanes<F, operation>(const std::uint16_t*, const std::uint16_t*, const std::uint16_t*, \
                                         std::uint16_t*, int);
#define TESSERA_ALL(F)               \
  TESSERA_FOR(F, HalfOperation::fma) \
  TESSERA_FOR(F, HalfOperation::add) \
  TESSERA_FOR(F, HalfOperation::sub) \
  TESSERA_FOR(F, HalfOperation::mul)
TESSERA_ALL(Format::f16)
TESSERA_ALL(Format::bf16)

}  // namespace tessera::emulator::math
