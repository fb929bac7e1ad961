// The special-function unit for the lanes of a warp at once, eight in a step, with the numbers that mufu.cpp has one by
// one. What is ordinary is computed here; zeros, subnormals, infinities, NaNs and what a form scales go to its
// function.
//
// A table's sums are integers below 2^53, so double holds them and its products exactly. The folded square is not
// looked up (256 KiB, which caches hold badly) but added up from its eight rows that reach above the cut.
#include <array>
#include <utility>

#include "emulator/math/mufu.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "emulator/math/bits.h"
#include "emulator/math/mufu_tables.h"

namespace tessera::emulator::math {

std::uint32_t (*function_of(SpecialForm form))(std::uint32_t) {
  constexpr std::uint32_t (*kFunctions[])(std::uint32_t) = {ex2_ftz,  rcp_ftz,  rsqrt_ftz,  sqrt_ftz,  lg2_ftz,
                                                            ex2_full, rcp_full, rsqrt_full, sqrt_full, lg2_full};
  return kFunctions[static_cast<int>(form)];
}

namespace {

#if defined(__x86_64__)
#define TESSERA_AVX2 [[gnu::target("avx2"), gnu::always_inline]] inline

/// A table by columns, as doubles. kHalves: c1 is for the fraction without its lowest bit's half (17 bits).
template <std::size_t kRows>
struct Columns {
  alignas(64) std::array<double, kRows> c0{}, c1{}, c2{};
  constexpr explicit Columns(const Quadratic (&table)[kRows], bool halves) {
    for (std::size_t i = 0; i < kRows; ++i) {
      c0[i] = static_cast<double>(table[i].c0);
      c1[i] = static_cast<double>(halves ? table[i].c1 / 2 : table[i].c1);
      c2[i] = static_cast<double>(table[i].c2) * 2;
    }
  }
};
template <std::size_t kRows>
Columns(const Quadratic (&)[kRows], bool) -> Columns<kRows>;
constexpr Columns kEx2Columns(kEx2, true);
constexpr Columns kRcpColumns(kRcp, false);
constexpr Columns kRsqrtColumns(kRsqrt, true);
constexpr Columns kSqrtColumns(kSqrt, true);
constexpr Columns kLg2Columns(kLg2, true);

TESSERA_AVX2 __m256i words(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }

// The sum of x_i * (2^2i + low_i 2^(i+1)) over the bits i of x, each cut below 2^(2 kBits - 15).
template <int kBits>
TESSERA_AVX2 __m256i square(__m256i x) {
  constexpr int kCut = 2 * kBits - 15;
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = kBits - 8; i < kBits; ++i) {
    const __m256i bit = _mm256_srai_epi32(_mm256_slli_epi32(x, 31 - i), 31);
    const __m256i low = _mm256_and_si256(x, words((1u << i) - 1));
    const int shift = kCut - (i + 1);
    const __m256i cross = shift >= 0 ? _mm256_srli_epi32(low, shift) : _mm256_slli_epi32(low, -shift);
    const __m256i own = words(static_cast<std::uint32_t>(std::uint64_t{1} << (2 * i) >> kCut));
    sum = _mm256_add_epi32(sum, _mm256_and_si256(bit, _mm256_add_epi32(cross, own)));
  }
  return sum;
}

// What _mm256_i32gather_pd is, without the undefined register that g++ 12 warns of.
TESSERA_AVX2 __m256d column(const double* values, __m128i row) {
  const __m256d all = _mm256_castsi256_pd(_mm256_set1_epi64x(-1));
  return _mm256_mask_i32gather_pd(_mm256_setzero_pd(), values, row, all, 8);
}
struct Halves {
  __m256d low, high;
};
template <class Table>
TESSERA_AVX2 __m256d evaluate(const Table& table, __m128i row, __m128i x, __m128i squared) {
  const __m256d line = _mm256_mul_pd(column(table.c1.data(), row), _mm256_cvtepi32_pd(x));
  const __m256d curve = _mm256_mul_pd(column(table.c2.data(), row), _mm256_cvtepi32_pd(squared));
  return _mm256_add_pd(_mm256_add_pd(column(table.c0.data(), row), line), curve);
}
template <int kBits, class Table>
TESSERA_AVX2 Halves evaluate(const Table& table, __m256i row, __m256i x) {
  const __m256i squared = square<kBits>(x);
  return {evaluate(table, _mm256_castsi256_si128(row), _mm256_castsi256_si128(x), _mm256_castsi256_si128(squared)),
          evaluate(table, _mm256_extracti128_si256(row, 1), _mm256_extracti128_si256(x, 1),
                   _mm256_extracti128_si256(squared, 1))};
}
TESSERA_AVX2 __m256 as_floats(__m256d low, __m256d high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1);
}
/// S in units of 2^-16, or of 2^-17 where it is twice as large, cut: at most 2^24, so a float holds it.
TESSERA_AVX2 __m256 cut16(const Halves& s, double unit = 0x1p-16) {
  const __m256d factor = _mm256_set1_pd(unit);
  return as_floats(_mm256_floor_pd(_mm256_mul_pd(s.low, factor)), _mm256_floor_pd(_mm256_mul_pd(s.high, factor)));
}
/// value * 2^exponent with the unit's flush and overflow.
TESSERA_AVX2 __m256i scaled(__m256 value, __m256i exponent) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i field = _mm256_add_epi32(_mm256_srli_epi32(bits, 23), exponent);
  const __m256i result = _mm256_add_epi32(bits, _mm256_slli_epi32(exponent, 23));
  const __m256i is_normal = _mm256_cmpgt_epi32(field, _mm256_setzero_si256());
  const __m256i is_large = _mm256_cmpgt_epi32(field, words(254));
  return _mm256_blendv_epi8(_mm256_and_si256(result, is_normal), words(kInfinityF32), is_large);
}
TESSERA_AVX2 __m256i within(__m256i value, std::uint32_t above, std::uint32_t below) {
  return _mm256_and_si256(_mm256_cmpgt_epi32(value, words(above)), _mm256_cmpgt_epi32(words(below), value));
}

// Each unit: the results, and which lanes are ordinary.
struct Eight {
  __m256i result, is_plain;
};

TESSERA_AVX2 Eight ex2_eight(__m256i x, bool is_full) {
  const __m256i magnitude = _mm256_and_si256(x, words(0x7FFFFFFF));
  const __m256i sign = _mm256_srai_epi32(x, 31);
  // |x| below 2^8 in units of 2^-23, cut; complemented where x is negative, or negated where it is whole.
  const __m256i fixed = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p23f)));
  const __m256i is_whole = _mm256_cmpeq_epi32(_mm256_and_si256(fixed, words(0x7FFFFF)), _mm256_setzero_si256());
  const __m256i place = _mm256_sub_epi32(_mm256_xor_si256(fixed, sign), _mm256_and_si256(sign, is_whole));
  const __m256i fraction = _mm256_and_si256(place, words(0x7FFFFF));
  const Halves s =
      evaluate<17>(kEx2Columns, _mm256_srli_epi32(fraction, 17), _mm256_and_si256(fraction, words(0x1FFFF)));
  const __m256i result = scaled(cut16(s), _mm256_sub_epi32(_mm256_srai_epi32(place, 23), words(23)));
  __m256i is_plain = within(magnitude, 0x007FFFFF, 0x43800000);
  if (is_full) {  // from -126 on
    const __m256i small = _mm256_cmpgt_epi32(magnitude, words(0x42FC0000));
    is_plain = _mm256_andnot_si256(_mm256_and_si256(small, sign), is_plain);
  }
  return {result, is_plain};
}

TESSERA_AVX2 Eight rcp_eight(__m256i x, bool is_full) {
  const __m256i magnitude = _mm256_and_si256(x, words(0x7FFFFFFF)), sign = _mm256_and_si256(x, words(0x80000000));
  const __m256i fraction = _mm256_and_si256(x, words(0x7FFFFF));
  const Halves s =
      evaluate<16>(kRcpColumns, _mm256_srli_epi32(fraction, 16), _mm256_and_si256(fraction, words(0xFFFF)));
  const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(magnitude, 23), words(127));
  const __m256i result = scaled(cut16(s), _mm256_sub_epi32(words(static_cast<std::uint32_t>(-24)), exponent));
  return {_mm256_or_si256(result, sign), within(magnitude, 0x007FFFFF, is_full ? 0x7E800000 : kInfinityF32)};
}

// rsqrt and sqrt: the exponent's parity chooses the half of the table, the rest is halved.
template <class Table>
TESSERA_AVX2 __m256i root_eight(const Table& table, __m256i x, bool is_reciprocal) {
  const __m256i fraction = _mm256_and_si256(x, words(0x7FFFFF));
  const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(x, 23), words(127));
  const __m256i odd = _mm256_and_si256(exponent, words(1));
  const __m256i row = _mm256_add_epi32(_mm256_slli_epi32(odd, 6), _mm256_srli_epi32(fraction, 17));
  const Halves s = evaluate<17>(table, row, _mm256_and_si256(fraction, words(0x1FFFF)));
  const __m256i half = _mm256_srai_epi32(_mm256_sub_epi32(exponent, odd), 1);
  if (is_reciprocal) return scaled(cut16(s), _mm256_sub_epi32(words(static_cast<std::uint32_t>(-24)), half));
  return scaled(cut16(s, 0x1p-17), _mm256_add_epi32(words(static_cast<std::uint32_t>(-23)), half));
}
TESSERA_AVX2 Eight rsqrt_eight(__m256i x) {
  const __m256i is_power = _mm256_cmpeq_epi32(_mm256_and_si256(x, words(0x7FFFFF)), _mm256_setzero_si256());
  return {root_eight(kRsqrtColumns, x, true), _mm256_andnot_si256(is_power, within(x, 0x007FFFFF, kInfinityF32))};
}
TESSERA_AVX2 Eight sqrt_eight(__m256i x) {
  return {root_eight(kSqrtColumns, x, false), within(x, 0x007FFFFF, kInfinityF32)};
}

// The exponent and the table's value in units of 2^-36, cut; a negative one complemented, then its upper 24 bits.
struct Logarithm {
  __m256d value, is_negative;
};
TESSERA_AVX2 Logarithm logarithm(__m256d table, __m128i exponent) {
  const __m256d whole = _mm256_mul_pd(_mm256_cvtepi32_pd(exponent), _mm256_set1_pd(0x1p40));
  const __m256d sum = _mm256_floor_pd(_mm256_mul_pd(_mm256_add_pd(whole, table), _mm256_set1_pd(0x1p-4)));
  const __m256d is_negative = _mm256_cmp_pd(sum, _mm256_setzero_pd(), _CMP_LT_OQ);
  const __m256d complement = _mm256_sub_pd(_mm256_set1_pd(-1), sum);
  const __m256d value = _mm256_blendv_pd(sum, complement, is_negative);
  const __m256d upper = _mm256_castsi256_pd(_mm256_set1_epi64x(~((1ll << 29) - 1)));
  return {_mm256_and_pd(value, upper), is_negative};
}
TESSERA_AVX2 Eight lg2_eight(__m256i x) {
  const __m256i fraction = _mm256_and_si256(x, words(0x7FFFFF));
  const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(x, 23), words(127));
  const Halves s =
      evaluate<17>(kLg2Columns, _mm256_srli_epi32(fraction, 17), _mm256_and_si256(fraction, words(0x1FFFF)));
  const Logarithm low = logarithm(s.low, _mm256_castsi256_si128(exponent));
  const Logarithm high = logarithm(s.high, _mm256_extracti128_si256(exponent, 1));
  const __m256 value = _mm256_mul_ps(as_floats(low.value, high.value), _mm256_set1_ps(0x1p-36f));
  const __m256d minus = _mm256_set1_pd(-1);
  const __m256 signs = as_floats(_mm256_and_pd(low.is_negative, minus), _mm256_and_pd(high.is_negative, minus));
  const __m256i sign = _mm256_and_si256(_mm256_castps_si256(signs), words(0x80000000));
  const __m256i is_one = _mm256_cmpeq_epi32(x, words(0x3F800000));
  return {_mm256_or_si256(_mm256_castps_si256(value), sign),
          _mm256_andnot_si256(is_one, within(x, 0x007FFFFF, kInfinityF32))};
}

template <SpecialForm kForm>
[[gnu::target("avx2")]] void lanes_avx2(const std::uint32_t* x, std::uint32_t* result, std::uint32_t active) {
  constexpr SpecialForm kUnit = static_cast<SpecialForm>(static_cast<int>(kForm) % 5);
  constexpr bool kFull = static_cast<int>(kForm) >= 5;
  for (int lane = 0; lane < 32; lane += 8) {
    const __m256i in = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + lane));
    Eight eight;
    if constexpr (kUnit == SpecialForm::ex2_ftz) eight = ex2_eight(in, kFull);
    if constexpr (kUnit == SpecialForm::rcp_ftz) eight = rcp_eight(in, kFull);
    if constexpr (kUnit == SpecialForm::rsqrt_ftz) eight = rsqrt_eight(in);
    if constexpr (kUnit == SpecialForm::sqrt_ftz) eight = sqrt_eight(in);
    if constexpr (kUnit == SpecialForm::lg2_ftz) eight = lg2_eight(in);
    alignas(32) std::uint32_t source[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(source), in);  // result may be x
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(result + lane), eight.result);
    auto rest =
        ~static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(eight.is_plain))) & active >> lane & 255;
    for (; rest != 0; rest &= rest - 1) {
      const int of = __builtin_ctz(rest);
      result[lane + of] = function_of(kForm)(source[of]);
    }
  }
}

template <int... kForms>
auto table_of(std::integer_sequence<int, kForms...>) {
  return std::array{lanes_avx2<static_cast<SpecialForm>(kForms)>...};
}
#endif

}  // namespace

void special_lanes(SpecialForm form, const std::uint32_t* x, std::uint32_t* result, std::uint32_t active) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  static const auto forms = table_of(std::make_integer_sequence<int, 10>());
  if (has_avx2) return forms[static_cast<std::size_t>(form)](x, result, active);
#endif
  for (int lane = 0; lane < 32; ++lane)
    if ((active >> lane & 1) != 0) result[lane] = function_of(form)(x[lane]);
}

}  // namespace tessera::emulator::math
