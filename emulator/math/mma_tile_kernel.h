// The body of mma_tile, compiled three times with different instruction sets (see mma_tile.cpp). GCC's vector types are
// lowered to what the set has.
#pragma once

#include <cstring>

#include "emulator/math/mma_tile.h"

// Vectors wider than the baseline's registers are passed between functions here: all of them are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tessera::emulator::math::kernel {

/// Vectors of kBytes: int32 and float lanes, and half as many int64 and double lanes.
template <int kBytes>
struct Vectors {
  static constexpr int kLanes = kBytes / 4;
  // typedef: g++ 12 ignores a dependent vector_size on an alias.
  typedef std::int32_t I __attribute__((vector_size(kBytes)));
  typedef float F __attribute__((vector_size(kBytes)));
  typedef std::int32_t HalfI __attribute__((vector_size(kBytes / 2)));
  typedef std::int64_t L __attribute__((vector_size(kBytes)));
  typedef double D __attribute__((vector_size(kBytes)));
};

/// One group of k for all rows and one block of kMmaLanes columns, repacked so that both loops run through memory in
/// order.
struct Step {
  const float* row_significand;  ///< row * kMaxGroup + k
  const std::int32_t* row_exponent;
  const float* column_significand;  ///< k * kMmaLanes + column
  const std::int32_t* column_exponent;
  int rows;
  int k;
  int fraction_bits;
  std::uint32_t keep_mask;  ///< f32 result bits that are kept
  /// Which columns of a row to form, a bit for kFailUnit of them from wanted_shift on; nullptr: all.
  const std::uint8_t* wanted = nullptr;
  int wanted_shift = 0;
};

constexpr int kMaxGroup = 32;  ///< products of the longest step
constexpr int kChunk = 8;      ///< terms that an int32 partial sum takes
constexpr int kFailUnit = 8;   ///< columns of one bit of Step::wanted

template <class To, class From>
[[gnu::always_inline]] inline To reinterpret(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
template <class Vector>
[[gnu::always_inline]] inline void load(Vector& to, const void* from) {
  std::memcpy(&to, from, sizeof(to));
}

template <class V>
struct Accumulator {
  typename V::F significand;
  typename V::I exponent;
};

// C as significand and exponent, coded as in MmaOperand.
template <class V, bool kHalf>
[[gnu::always_inline]] inline void unpack_accumulator(const typename V::I& c, Accumulator<V>& out) {
  using VecI = typename V::I;
  using VecF = typename V::F;
  constexpr int kFraction = kHalf ? 10 : 23;
  constexpr int kFieldMask = kHalf ? 31 : 255;
  constexpr int kBias = kHalf ? 15 : 127;
  const VecI field = (c >> kFraction) & kFieldMask;
  const VecI fraction = c & ((1 << kFraction) - 1);
  const VecI significand = fraction | ((field != 0) & (1 << kFraction));
  const VecI negative = (c << (kHalf ? 16 : 0)) & static_cast<std::int32_t>(0x80000000);
  const VecF magnitude = __builtin_convertvector(significand, VecF) * (1.0f / (1 << kFraction));
  out.significand = reinterpret<VecF>(reinterpret<VecI>(magnitude) | negative);
  const VecI finite = (field > 1 ? field : 1) - kBias;
  const VecI special = ((fraction != 0) & kNanExponent) | ((fraction == 0) & kInfinityExponent);
  const VecI nonzero = field == kFieldMask ? special : finite;
  out.exponent = significand == 0 ? (VecI{} + kZeroExponent) : nonzero;
}

// Exact sums (as double, in units of 2^(E - F)) to f32 bits: cut.
template <class V>
[[gnu::always_inline]] inline void finish_f32(const typename V::D& sum, const typename V::L& unit,
                                              std::uint32_t keep_mask, typename V::L& out) {
  using VecD = typename V::D;
  using VecL = typename V::L;
  const VecD value = sum * reinterpret<VecD>(unit);
  const VecL bits = reinterpret<VecL>(value);
  const VecL magnitude = bits & 0x7FFFFFFFFFFFFFFF;
  constexpr std::int64_t kSmallestNormal = std::int64_t{1023 - 126} << 52;
  // A double's upper bits are the float's, but for the bias.
  const VecL normal = (magnitude >> 29) - (std::int64_t{1023 - 127} << 23);
  const VecL capped = magnitude < kSmallestNormal ? magnitude : (VecL{} + kSmallestNormal);
  using HalfI = typename V::HalfI;
  const HalfI counted = __builtin_convertvector(reinterpret<VecD>(capped) * 0x1p149, HalfI);  // subnormal: in 2^-149
  VecL code = magnitude < kSmallestNormal ? __builtin_convertvector(counted, VecL) : normal;
  code = code > 0x7F800000 ? (VecL{} + 0x7F800000) : code;
  code &= static_cast<std::int64_t>(keep_mask);
  const VecL sign = (bits >> 32) & std::int64_t{0x80000000};
  out = code == 0 ? code : (code | sign);
}

// The same to f16 codes: nearest even.
template <class V>
[[gnu::always_inline]] inline void finish_f16(const typename V::D& sum, const typename V::L& unit, typename V::L& out) {
  using VecD = typename V::D;
  using VecL = typename V::L;
  const VecD value = sum * reinterpret<VecD>(unit);
  const VecL bits = reinterpret<VecL>(value);
  const VecL magnitude = bits & 0x7FFFFFFFFFFFFFFF;
  constexpr std::int64_t kSmallestNormal = std::int64_t{1023 - 14} << 52;
  const VecL rounded = magnitude + ((std::int64_t{1} << 41) - 1) + ((magnitude >> 42) & 1);
  const VecL normal = (rounded >> 42) - (std::int64_t{1023 - 15} << 10);
  // Subnormal: adding 2^52 rounds the count of 2^-24 to the nearest even integer and leaves it in the low bits.
  const VecL capped = magnitude < kSmallestNormal ? magnitude : (VecL{} + kSmallestNormal);
  const VecD counted = reinterpret<VecD>(capped) * 0x1p24 + 0x1p52;
  const VecL subnormal = reinterpret<VecL>(counted) & 0xFFFF;
  VecL code = magnitude < kSmallestNormal ? subnormal : normal;
  code = code > 0x7C00 ? (VecL{} + 0x7C00) : code;
  const VecL sign = (bits >> 48) & 0x8000;
  out = code == 0 ? code : (code | sign);
}

// Where infinity or NaN takes part, arithmetic does not matter: the result follows from what is there.
template <bool kHalf>
std::uint32_t special_result(const Step& s, int row, int lane, float c_significand, std::int32_t c_exponent) {
  constexpr std::int32_t kNanFrom = kNanExponent - kSpecialExponent;  // scales move exponents by a few hundred
  bool nan = c_exponent >= kNanFrom;
  bool plus = false;
  bool minus = false;
  const auto infinity = [&](float signed_value) { (signed_value < 0.0f ? minus : plus) = true; };
  if (!nan && c_exponent >= kSpecialExponent) infinity(c_significand);
  for (int k = 0; k < s.k; ++k) {
    const std::int32_t a = s.row_exponent[row * kMaxGroup + k];
    const std::int32_t b = s.column_exponent[k * kMmaLanes + lane];
    const bool a_infinite = a >= kSpecialExponent;
    const bool b_infinite = b >= kSpecialExponent;
    if (a >= kNanFrom || b >= kNanFrom) nan = true;
    if (!a_infinite && !b_infinite) continue;
    const float product = s.row_significand[row * kMaxGroup + k] * s.column_significand[k * kMmaLanes + lane];
    if (product == 0.0f)
      nan = true;  // infinity times zero
    else
      infinity(product);
  }
  if (nan || (plus && minus)) return kHalf ? kCanonicalNan16 : kCanonicalNanF32;
  const std::uint32_t positive = kHalf ? 0x7C00 : kInfinityF32;
  return minus ? positive | (kHalf ? 0x8000u : 0x80000000u) : positive;
}

// Both halves of the exact sums, in units of 2^(largest - F), to result codes at d.
template <class V, bool kHalf>
[[gnu::always_inline]] inline void store_results(const Step& s, const typename V::D& low, const typename V::D& high,
                                                 const typename V::I& largest, std::uint32_t* d) {
  using VecI = typename V::I;
  using HalfI = typename V::HalfI;
  using VecL = typename V::L;
  // The unit 2^(E - F); E of an all-zero sum is clamped, its value does not matter.
  VecI unit = largest > -900 ? largest : -900;
  unit = (unit < 900 ? unit : 900) - s.fraction_bits + 1023;
  HalfI units[2];
  std::memcpy(units, &unit, sizeof(unit));
  VecL results[2];
  if constexpr (kHalf) {
    finish_f16<V>(low, __builtin_convertvector(units[0], VecL) << 52, results[0]);
    finish_f16<V>(high, __builtin_convertvector(units[1], VecL) << 52, results[1]);
  } else {
    finish_f32<V>(low, __builtin_convertvector(units[0], VecL) << 52, s.keep_mask, results[0]);
    finish_f32<V>(high, __builtin_convertvector(units[1], VecL) << 52, s.keep_mask, results[1]);
  }
  const HalfI narrow[2] = {__builtin_convertvector(results[0], HalfI), __builtin_convertvector(results[1], HalfI)};
  std::memcpy(d, narrow, sizeof(narrow));
}

// One row times the vector of columns that starts at `column`.
template <class V, bool kHalf>
[[gnu::always_inline]] inline void run_row(const Step& s, int row, int column, std::uint32_t* d) {
  using VecI = typename V::I;
  using VecF = typename V::F;
  using HalfI = typename V::HalfI;
  using VecL = typename V::L;
  using VecD = typename V::D;
  const float* row_significand = s.row_significand + row * kMaxGroup;
  const std::int32_t* row_exponent = s.row_exponent + row * kMaxGroup;
  const float* column_significand = s.column_significand + column;
  const std::int32_t* column_exponent = s.column_exponent + column;
  VecI c;
  load(c, d);
  Accumulator<V> start;
  unpack_accumulator<V, kHalf>(c, start);
  VecI largest = start.exponent;
  for (int k = 0; k < s.k; ++k) {
    VecI exponent;
    load(exponent, column_exponent + k * kMmaLanes);
    exponent += row_exponent[k];
    largest = exponent > largest ? exponent : largest;
  }
  // A power of two as a float's exponent field; below 2^-7 every term is cut to zero anyway, so it goes no lower.
  const VecI base = (127 + s.fraction_bits) - largest;
  const auto term = [&base](const VecF& significand, const VecI& exponent) __attribute__((always_inline)) {
    VecI field = base + exponent;
    field = field > 120 ? field : 120;
    return __builtin_convertvector(significand * reinterpret<VecF>(field << 23), VecI);
  };
  VecI partial = term(start.significand, start.exponent);
  VecD low = {};
  VecD high = {};
  for (int first = 0; first < s.k; first += kChunk) {
    const int end = first + kChunk < s.k ? first + kChunk : s.k;
    for (int k = first; k < end; ++k) {
      VecF significand;
      VecI exponent;
      load(significand, column_significand + k * kMmaLanes);
      load(exponent, column_exponent + k * kMmaLanes);
      partial += term(significand * row_significand[k], exponent + row_exponent[k]);
    }
    HalfI halves[2];
    std::memcpy(halves, &partial, sizeof(partial));
    low += __builtin_convertvector(halves[0], VecD);
    high += __builtin_convertvector(halves[1], VecD);
    partial = VecI{};
  }
  store_results<V, kHalf>(s, low, high, largest, d);
  const VecL special = reinterpret<VecL>(largest >= kSpecialExponent);
  std::int64_t any = 0;
  for (int i = 0; i < V::kLanes / 2; ++i) any |= special[i];
  if (any != 0) [[unlikely]] {
    for (int lane = 0; lane < V::kLanes; ++lane)
      if (largest[lane] >= kSpecialExponent)
        d[lane] = special_result<kHalf>(s, row, column + lane, start.significand[lane], start.exponent[lane]);
  }
}

template <int kBytes, bool kHalf>
[[gnu::always_inline]] inline void run_step(const Step& s, std::uint32_t* d, std::ptrdiff_t pitch) {
  using V = Vectors<kBytes>;
  for (int row = 0; row < s.rows; ++row) {
    const unsigned wanted = s.wanted == nullptr ? ~0u : static_cast<unsigned>(s.wanted[row]) >> s.wanted_shift;
    for (int column = 0; column < kMmaLanes; column += V::kLanes)
      if ((wanted >> column / kFailUnit & 1) != 0) run_row<V, kHalf>(s, row, column, d + row * pitch + column);
  }
}

}  // namespace tessera::emulator::math::kernel
