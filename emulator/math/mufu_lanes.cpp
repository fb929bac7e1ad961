// The special-function unit for the lanes of a warp at once, eight in a step, with the numbers that mufu.cpp has one by
// one. What is ordinary is computed here; zeros, subnormals, infinities, NaNs and what a form scales go to its
// function.
//
// A table's sums are integers below 2^53, so double holds them and its products exactly, in a unit of
// 2^-16 or 2^-17 too. The folded square is not
// looked up (256 KiB, which caches hold badly) but made of its parts (squares()).
#include <array>
#include <cstring>
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
#define TESSERA_AVX2_FMA [[gnu::target("avx2,fma"), gnu::always_inline]] inline

/// A table as doubles in its unit, a row of 32 bytes: one load. kHalves: c1 is for the fraction without its lowest
/// bit's half (17 bits).
template <std::size_t kRows>
struct Rows {
  alignas(64) std::array<std::array<double, 4>, kRows> rows{};
  constexpr Rows(const Quadratic (&table)[kRows], bool halves, double unit) {
    for (std::size_t i = 0; i < kRows; ++i)
      rows[i] = {static_cast<double>(table[i].c0) * unit,
                 static_cast<double>(halves ? table[i].c1 / 2 : table[i].c1) * unit,
                 static_cast<double>(table[i].c2) * 2 * unit, 0.0};
  }
};
template <std::size_t kRows>
Rows(const Quadratic (&)[kRows], bool, double) -> Rows<kRows>;
constexpr Rows kEx2Rows(kEx2, true, 0x1p-16);
constexpr Rows kRcpRows(kRcp, false, 0x1p-16);
constexpr Rows kRsqrtRows(kRsqrt, true, 0x1p-16);
constexpr Rows kSqrtRows(kSqrt, true, 0x1p-17);
constexpr Rows kLg2Rows(kLg2, true, 1.0);

TESSERA_AVX2_FMA __m256i words(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }

// What a table is asked: eight lanes' row and the fraction below it.
struct Place {
  __m256i row, x;
};

// The low bytes of 32 words, in an order that unpacking undoes.
TESSERA_AVX2_FMA __m256i bytes(const __m256i (&from)[4]) {
  return _mm256_packus_epi16(_mm256_packus_epi32(from[0], from[1]), _mm256_packus_epi32(from[2], from[3]));
}

// The folded squares of 32 fractions of kBits: the sum of x_i * (2^2i + low_i 2^(i+1)) over the bits i of x, each cut
// below 2^(2 kBits - 15). With h the upper 8 bits of x the terms of h alone lose the lowest bit of h^2 / 2 and nothing
// else. What is left are h's bits with the lower ones: m, the 7 upper of those, moved down one more for each lower bit
// of h. Their sum is at most 247, so that the 32 are one vector of bytes.
template <int kBits>
TESSERA_AVX2_FMA void squares(const Place (&places)[4], __m256i (&squared)[4]) {
  const __m256i low_bits = words((1u << (kBits - 8)) - 1);
  __m256i upper[4], lower[4];
  for (int i = 0; i < 4; ++i) {
    upper[i] = _mm256_srli_epi32(places[i].x, kBits - 8);
    lower[i] = _mm256_srli_epi32(_mm256_and_si256(places[i].x, low_bits), kBits - 15);
  }
  __m256i h = bytes(upper), m = bytes(lower), sum = _mm256_setzero_si256();
  const __m256i zero = _mm256_setzero_si256(), seven = _mm256_set1_epi8(0x7F);
#pragma GCC unroll 7
  for (int i = 0; i < 7; ++i) {
    sum = _mm256_add_epi8(sum, _mm256_and_si256(_mm256_cmpgt_epi8(zero, h), m));
    h = _mm256_add_epi8(h, h);
    m = _mm256_and_si256(_mm256_srli_epi16(m, 1), seven);
  }
  const __m256i low = _mm256_unpacklo_epi8(sum, zero), high = _mm256_unpackhi_epi8(sum, zero);
  const __m256i cross[4] = {_mm256_unpacklo_epi16(low, zero), _mm256_unpackhi_epi16(low, zero),
                            _mm256_unpacklo_epi16(high, zero), _mm256_unpackhi_epi16(high, zero)};
  for (int i = 0; i < 4; ++i)
    squared[i] = _mm256_add_epi32(_mm256_srli_epi32(_mm256_madd_epi16(upper[i], upper[i]), 1), cross[i]);
}

struct Halves {
  __m256d low, high;
};
template <class Table>
TESSERA_AVX2_FMA __m256d evaluate(const Table& table, const std::uint32_t* row, __m128i x, __m128i squared) {
  const __m256d r0 = _mm256_load_pd(table.rows[row[0]].data()), r1 = _mm256_load_pd(table.rows[row[1]].data());
  const __m256d r2 = _mm256_load_pd(table.rows[row[2]].data()), r3 = _mm256_load_pd(table.rows[row[3]].data());
  const __m256d even_low = _mm256_unpacklo_pd(r0, r1), even_high = _mm256_unpacklo_pd(r2, r3);
  const __m256d c0 = _mm256_permute2f128_pd(even_low, even_high, 0x20);
  const __m256d c1 = _mm256_permute2f128_pd(_mm256_unpackhi_pd(r0, r1), _mm256_unpackhi_pd(r2, r3), 0x20);
  const __m256d c2 = _mm256_permute2f128_pd(even_low, even_high, 0x31);
  const __m256d line = _mm256_fmadd_pd(c1, _mm256_cvtepi32_pd(x), c0);  // exact, as the sum is
  return _mm256_fmadd_pd(c2, _mm256_cvtepi32_pd(squared), line);
}
template <class Table>
TESSERA_AVX2_FMA Halves evaluate(const Table& table, const Place& place, __m256i squared) {
  alignas(32) std::uint32_t rows[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(rows), place.row);
  return {evaluate(table, rows, _mm256_castsi256_si128(place.x), _mm256_castsi256_si128(squared)),
          evaluate(table, rows + 4, _mm256_extracti128_si256(place.x, 1), _mm256_extracti128_si256(squared, 1))};
}
TESSERA_AVX2_FMA __m256 as_floats(__m256d low, __m256d high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1);
}
/// S, cut: at most 2^24, so a float holds it.
TESSERA_AVX2_FMA __m256 cut(const Halves& s) {
  return _mm256_cvtepi32_ps(_mm256_set_m128i(_mm256_cvttpd_epi32(s.high), _mm256_cvttpd_epi32(s.low)));
}
/// value * 2^exponent with the unit's flush and overflow.
TESSERA_AVX2_FMA __m256i scaled(__m256 value, __m256i exponent) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i field = _mm256_add_epi32(_mm256_srli_epi32(bits, 23), exponent);
  const __m256i result = _mm256_add_epi32(bits, _mm256_slli_epi32(exponent, 23));
  const __m256i is_normal = _mm256_cmpgt_epi32(field, _mm256_setzero_si256());
  const __m256i is_large = _mm256_cmpgt_epi32(field, words(254));
  return _mm256_blendv_epi8(_mm256_and_si256(result, is_normal), words(kInfinityF32), is_large);
}
TESSERA_AVX2_FMA __m256i within(__m256i value, std::uint32_t above, std::uint32_t below) {
  return _mm256_and_si256(_mm256_cmpgt_epi32(value, words(above)), _mm256_cmpgt_epi32(words(below), value));
}

// Each unit: where eight lanes look, and of what they find there the results and which lanes are ordinary.
struct Eight {
  __m256i result, is_plain;
};
TESSERA_AVX2_FMA Place place17(__m256i fraction) {
  return {_mm256_srli_epi32(fraction, 17), _mm256_and_si256(fraction, words(0x1FFFF))};
}
TESSERA_AVX2_FMA __m256i fraction_of(__m256i x) { return _mm256_and_si256(x, words(0x7FFFFF)); }

template <bool kFull>
struct Ex2 {
  static constexpr int kBits = 17;
  static constexpr const auto& kTable = kEx2Rows;
  // |x| below 2^8 in units of 2^-23, cut; complemented where x is negative, or negated where it is whole.
  TESSERA_AVX2_FMA static __m256i fixed_point(__m256i x) {
    const __m256i magnitude = _mm256_and_si256(x, words(0x7FFFFFFF)), sign = _mm256_srai_epi32(x, 31);
    const __m256i fixed = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p23f)));
    const __m256i is_whole = _mm256_cmpeq_epi32(fraction_of(fixed), _mm256_setzero_si256());
    return _mm256_sub_epi32(_mm256_xor_si256(fixed, sign), _mm256_and_si256(sign, is_whole));
  }
  TESSERA_AVX2_FMA static Place place(__m256i x) { return place17(fraction_of(fixed_point(x))); }
  TESSERA_AVX2_FMA static Eight finish(__m256i x, const Halves& s) {
    const __m256i magnitude = _mm256_and_si256(x, words(0x7FFFFFFF)), sign = _mm256_srai_epi32(x, 31);
    const __m256i result = scaled(cut(s), _mm256_sub_epi32(_mm256_srai_epi32(fixed_point(x), 23), words(23)));
    __m256i is_plain = within(magnitude, 0x007FFFFF, 0x43800000);
    if constexpr (kFull) {  // from -126 on
      const __m256i small = _mm256_cmpgt_epi32(magnitude, words(0x42FC0000));
      is_plain = _mm256_andnot_si256(_mm256_and_si256(small, sign), is_plain);
    }
    return {result, is_plain};
  }
};

template <bool kFull>
struct Rcp {
  static constexpr int kBits = 16;
  static constexpr const auto& kTable = kRcpRows;
  TESSERA_AVX2_FMA static Place place(__m256i x) {
    return {_mm256_srli_epi32(fraction_of(x), 16), _mm256_and_si256(x, words(0xFFFF))};
  }
  TESSERA_AVX2_FMA static Eight finish(__m256i x, const Halves& s) {
    const __m256i magnitude = _mm256_and_si256(x, words(0x7FFFFFFF)), sign = _mm256_and_si256(x, words(0x80000000));
    const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(magnitude, 23), words(127));
    const __m256i result = scaled(cut(s), _mm256_sub_epi32(words(static_cast<std::uint32_t>(-24)), exponent));
    return {_mm256_or_si256(result, sign), within(magnitude, 0x007FFFFF, kFull ? 0x7E800000 : kInfinityF32)};
  }
};

// rsqrt and sqrt: the exponent's parity chooses the half of the table, the rest is halved.
template <bool kReciprocal>
struct Root {
  static constexpr int kBits = 17;
  static constexpr const auto& kTable = []() -> const auto& {
    if constexpr (kReciprocal)
      return kRsqrtRows;
    else
      return kSqrtRows;
  }
  ();
  TESSERA_AVX2_FMA static __m256i exponent(__m256i x) { return _mm256_sub_epi32(_mm256_srli_epi32(x, 23), words(127)); }
  TESSERA_AVX2_FMA static Place place(__m256i x) {
    Place at = place17(fraction_of(x));
    at.row = _mm256_add_epi32(_mm256_slli_epi32(_mm256_and_si256(exponent(x), words(1)), 6), at.row);
    return at;
  }
  TESSERA_AVX2_FMA static Eight finish(__m256i x, const Halves& s) {
    const __m256i half = _mm256_srai_epi32(exponent(x), 1);  // rounds down, so that an odd one is one less
    const __m256i is_normal = within(x, 0x007FFFFF, kInfinityF32);
    if constexpr (kReciprocal) {
      const __m256i is_power = _mm256_cmpeq_epi32(fraction_of(x), _mm256_setzero_si256());
      return {scaled(cut(s), _mm256_sub_epi32(words(static_cast<std::uint32_t>(-24)), half)),
              _mm256_andnot_si256(is_power, is_normal)};
    } else {
      return {scaled(cut(s), _mm256_add_epi32(words(static_cast<std::uint32_t>(-23)), half)), is_normal};
    }
  }
};

// The exponent and the table's value in units of 2^-36, cut; a negative one complemented, then its upper 24 bits.
struct Logarithm {
  __m256d value, is_negative;
};
TESSERA_AVX2_FMA Logarithm logarithm(__m256d table, __m128i exponent) {
  const __m256d whole = _mm256_mul_pd(_mm256_cvtepi32_pd(exponent), _mm256_set1_pd(0x1p40));
  const __m256d sum = _mm256_floor_pd(_mm256_mul_pd(_mm256_add_pd(whole, table), _mm256_set1_pd(0x1p-4)));
  const __m256d is_negative = _mm256_cmp_pd(sum, _mm256_setzero_pd(), _CMP_LT_OQ);
  const __m256d complement = _mm256_sub_pd(_mm256_set1_pd(-1), sum);
  const __m256d value = _mm256_blendv_pd(sum, complement, is_negative);
  const __m256d upper = _mm256_castsi256_pd(_mm256_set1_epi64x(~((1ll << 29) - 1)));
  return {_mm256_and_pd(value, upper), is_negative};
}
struct Lg2 {
  static constexpr int kBits = 17;
  static constexpr const auto& kTable = kLg2Rows;
  TESSERA_AVX2_FMA static Place place(__m256i x) { return place17(fraction_of(x)); }
  TESSERA_AVX2_FMA static Eight finish(__m256i x, const Halves& s) {
    const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(x, 23), words(127));
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
};

template <SpecialForm kForm>
auto unit_of() {
  constexpr SpecialForm kUnit = static_cast<SpecialForm>(static_cast<int>(kForm) % 5);
  constexpr bool kFull = static_cast<int>(kForm) >= 5;
  if constexpr (kUnit == SpecialForm::ex2_ftz)
    return Ex2<kFull>{};
  else if constexpr (kUnit == SpecialForm::rcp_ftz)
    return Rcp<kFull>{};
  else if constexpr (kUnit == SpecialForm::rsqrt_ftz)
    return Root<true>{};
  else if constexpr (kUnit == SpecialForm::sqrt_ftz)
    return Root<false>{};
  else
    return Lg2{};
}

template <SpecialForm kForm>
[[gnu::target("avx2,fma")]] void lanes_avx2(const std::uint32_t* x, std::uint32_t* result, std::uint32_t active) {
  using Unit = decltype(unit_of<kForm>());
  __m256i in[4], squared[4];
  Place places[4];
  for (int i = 0; i < 4; ++i) {
    in[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * i));
    places[i] = Unit::place(in[i]);
  }
  squares<Unit::kBits>(places, squared);
  std::uint32_t rest = 0;
  __m256i out[4];
  for (int i = 0; i < 4; ++i) {
    const Eight eight = Unit::finish(in[i], evaluate(Unit::kTable, places[i], squared[i]));
    out[i] = eight.result;
    rest |= (~static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(eight.is_plain))) & 255) << (8 * i);
  }
  alignas(32) std::uint32_t source[32];
  rest &= active;
  if (rest != 0) std::memcpy(source, x, sizeof(source));  // result may be x
  for (int i = 0; i < 4; ++i) _mm256_storeu_si256(reinterpret_cast<__m256i*>(result + 8 * i), out[i]);
  for (; rest != 0; rest &= rest - 1) {
    const int of = __builtin_ctz(rest);
    result[of] = function_of(kForm)(source[of]);
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
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  static const auto forms = table_of(std::make_integer_sequence<int, 10>());
  if (has_avx2) return forms[static_cast<std::size_t>(form)](x, result, active);
#endif
  for (int lane = 0; lane < 32; ++lane)
    if ((active >> lane & 1) != 0) result[lane] = function_of(form)(x[lane]);
}

}  // namespace tessera::emulator::math
