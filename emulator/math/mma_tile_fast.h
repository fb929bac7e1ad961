// The body of mma_tile for numbers of ordinary size: f32 results, every operand zero or of an exponent in [-62, 60].
// Such elements are floats, and a product of two is exact in float. So a term is two multiplications and a cut:
// (a * b) * 2^(F - E), converted to int32. E is looked for in 16-bit lanes. What does not fit (an infinity, a sum
// beyond 2^31 units, an E that leaves float's range) is left alone and named in `failed`: mma_tile_kernel.h forms it.
//
// Compiled once for each instruction set (see mma_tile.cpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "emulator/math/mma_tile_kernel.h"

namespace tessera::emulator::math::kernel {

constexpr int kFastColumns = 2 * kMmaLanes;  ///< of a block
constexpr int kFastChunk = 16;               ///< products that stay below 2^31 units together (F at most 25)
constexpr int kLeastExponent = -62;          ///< of an element
constexpr int kMostExponent = 60;
constexpr std::int16_t kFastZero = -8000;  ///< below every sum of two real exponents

template <int kBytes>
inline constexpr int kFastRows = kBytes == 32 ? 8 : 1;  ///< whose exponents are looked for at once

/// The elements of one k, as MmaOperand has them: significands and exponents, or codes.
struct Plane {
  const float* significand;
  const std::int32_t* exponent;
  const std::uint16_t* codes;  ///< null: none
};

/// One group of k: planes in the instruction's order.
struct Planes {
  Plane row[kMaxGroup];
  Plane column[kMaxGroup];
  bool f16_rows;  ///< what codes are, else bf16
  bool f16_columns;
  int rows;
  int columns;  ///< a multiple of kMmaLanes
  int k;
  int fraction_bits;
  std::uint32_t keep_mask;
};

/// Room that the caller keeps: for `rows`, rounded up to kMmaLanes, and k.
struct FastRoom {
  float* row_value;            ///< k * row_stride + row
  std::int32_t* row_exponent;  ///< the same, the exponent twice: two 16-bit lanes
  std::int32_t* row_bad;       ///< rows
  std::ptrdiff_t row_stride;   ///< rows rounded up to kMmaLanes
  float* column_value;         ///< k * kFastColumns + column
  std::int16_t* column_exponent;
};

/// kParts vectors of kBytes: int32 and float lanes; all lanes once more as 16-bit ones.
template <int kBytes, std::size_t kParts>
struct FastVectors {
  static constexpr std::size_t kLanes = kBytes / 4;
  typedef std::int32_t I __attribute__((vector_size(kBytes)));
  typedef std::uint32_t U __attribute__((vector_size(kBytes)));
  typedef float F __attribute__((vector_size(kBytes)));
  typedef std::int16_t PartS __attribute__((vector_size(kBytes / 2)));
  typedef std::uint16_t PartU __attribute__((vector_size(kBytes / 2)));
  typedef std::int16_t S __attribute__((vector_size(kBytes / 2 * kParts)));
  typedef std::uint16_t SU __attribute__((vector_size(kBytes / 2 * kParts)));
  typedef std::int32_t Pair __attribute__((vector_size(kBytes / 2 * kParts)));
};

// What vector types don't say, for AVX2. clang wants the instruction set where an instruction stands.
#if defined(__x86_64__) && !defined(__clang__)
template <int kBytes>
inline constexpr bool kHasAvx2 = kBytes == 32;

/// Floats are rounded toward zero while it lives. All else here is exact, so it need not keep its place beside this.
class RoundsTowardZero {
 public:
  [[gnu::always_inline]] RoundsTowardZero() {
    __asm__ volatile("stmxcsr %0" : "=m"(before_));
    const unsigned now = before_ | 0x6000;
    __asm__ volatile("ldmxcsr %0" : : "m"(now));
  }
  [[gnu::always_inline]] ~RoundsTowardZero() { __asm__ volatile("ldmxcsr %0" : : "m"(before_)); }
  RoundsTowardZero(const RoundsTowardZero&) = delete;
  RoundsTowardZero& operator=(const RoundsTowardZero&) = delete;

 private:
  unsigned before_ = 0;
};
#else
template <int kBytes>
inline constexpr bool kHasAvx2 = false;
class RoundsTowardZero {};
#endif
class RoundsAsBefore {};

/// Whether a lane's sign bit is set.
template <int kBytes>
[[gnu::always_inline]] inline bool any_negative(const typename FastVectors<kBytes, 1>::I& lanes) {
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (kHasAvx2<kBytes>) {
    int signs;
    __asm__("vmovmskps %1, %0" : "=r"(signs) : "x"(lanes));
    return signs != 0;
  }
#endif
  if constexpr (kBytes > 16) {
    typename FastVectors<kBytes / 2, 1>::I halves[2];
    std::memcpy(halves, &lanes, sizeof(lanes));
    return any_negative<kBytes / 2>(halves[0] | halves[1]);
  } else {
    std::uint64_t halves[2];
    std::memcpy(halves, &lanes, sizeof(lanes));
    return ((halves[0] | halves[1]) & 0x8000000080000000) != 0;
  }
}

/// Elements (a multiple of kMmaLanes) to values and exponents: 16 bits, or kTwice: twice in 32. The sign bits of bad
/// collect what is not of ordinary size. decode(i, value, exponent) gives a vector from element i on.
template <int kBytes, bool kTwice, class Exponent, class Decode>
[[gnu::always_inline]] inline void plain_values(int first, int count, float* value, Exponent* narrow, std::int32_t* bad,
                                                Decode decode) {
  using V = FastVectors<kBytes, 1>;
  using VecI = typename V::I;
  for (int i = 0; i < count; i += kBytes / 4) {
    typename V::F s;
    VecI e;
    decode(first + i, s, e);
    VecI told;
    load(told, bad + i);
    const VecI magnitude = reinterpret<VecI>(s) << 1;
    told |= (kMostExponent - e) | ((e - kLeastExponent) & (magnitude != 0));
    std::memcpy(bad + i, &told, sizeof(told));
    std::memcpy(value + i, &s, sizeof(s));
    e = magnitude == 0 ? (VecI{} + kFastZero) : e;
    if constexpr (kTwice) {
      e = (e & 0xFFFF) | (e << 16);
      std::memcpy(narrow + i, &e, sizeof(e));
    } else {
      const auto half = __builtin_convertvector(e, typename V::PartS);
      std::memcpy(narrow + i, &half, sizeof(half));
    }
  }
}

/// The same of a plane.
template <int kBytes, bool kTwice, class Exponent>
[[gnu::always_inline]] inline void plain_plane(const Plane& plane, bool is_f16, int first, int count, float* value,
                                               Exponent* narrow, std::int32_t* bad) {
  using V = FastVectors<kBytes, 1>;
  using VecI = typename V::I;
  using VecF = typename V::F;
  const auto codes = [&plane](int i) __attribute__((always_inline)) {
    typename V::PartU packed;
    load(packed, plane.codes + i);
    return __builtin_convertvector(packed, VecI);
  };
  if (plane.codes == nullptr) {
    plain_values<kBytes, kTwice>(
        first, count, value, narrow, bad, [&](int i, VecF& s, VecI& e) __attribute__((always_inline)) {
          load(s, plane.significand + i);
          load(e, plane.exponent + i);
          VecI plain = e > kLeastExponent ? e : (VecI{} + kLeastExponent);
          plain = plain < kMostExponent ? plain : (VecI{} + kMostExponent);
          s *= reinterpret<VecF>((plain + 127) << 23);
        });
  } else if (is_f16) {
    plain_values<kBytes, kTwice>(
        first, count, value, narrow, bad, [&](int i, VecF& s, VecI& e) __attribute__((always_inline)) {
          const VecI code = codes(i);
          const VecI field = (code >> 10) & 31;
          const VecI some = field > 0 ? field : (VecI{} + 1);
          const VecI significand = (code & 1023) | ((some - field - 1) & 1024);
          s = __builtin_convertvector(significand, VecF) * reinterpret<VecF>((some + (127 - 15 - 10)) << 23);
          s = reinterpret<VecF>(reinterpret<VecI>(s) | (code << 16 & static_cast<std::int32_t>(0x80000000)));
          e = field > 30 ? (VecI{} + kInfinityExponent) : some - 15;
        });
  } else {
    plain_values<kBytes, kTwice>(
        first, count, value, narrow, bad, [&](int i, VecF& s, VecI& e) __attribute__((always_inline)) {
          const VecI bits = codes(i) << 16;
          const VecI field = (bits >> 23) & 255;
          s = reinterpret<VecF>(bits);
          e = (field > 0 ? field : (VecI{} + 1)) - 127;  // infinity and NaN: 128
        });
  }
}

/// To float, rounded toward zero. The sign bits of bad collect what could not be converted.
template <int kBytes>
[[gnu::always_inline]] inline typename FastVectors<kBytes, 1>::F cut_to_float(
    const typename FastVectors<kBytes, 1>::I& total, typename FastVectors<kBytes, 1>::I& bad) {
  using VecI = typename FastVectors<kBytes, 1>::I;
  using VecU = typename FastVectors<kBytes, 1>::U;
  using VecF = typename FastVectors<kBytes, 1>::F;
#if defined(__x86_64__) && !defined(__clang__)  // clang wants the instruction set where this stands
  if constexpr (kBytes == 64) {                 // the instruction says how it rounds; no vector type does
    VecF cut;
    __asm__("vcvtdq2ps %{rz-sae%}, %1, %0" : "=v"(cut) : "v"(total));
    return cut;
  }
  if constexpr (kHasAvx2<kBytes>) {  // volatile: it stays where RoundsTowardZero lives
    VecF cut;
    __asm__ volatile("vcvtdq2ps %1, %0" : "=x"(cut) : "x"(total));
    return cut;
  }
#endif
  const VecI sign = total >> 31;
  const VecU magnitude = reinterpret<VecU>(total ^ sign) - reinterpret<VecU>(sign);
  bad |= reinterpret<VecI>(magnitude + 0x200);  // so that a float that was rounded up still is an int32
  const VecF nearest = __builtin_convertvector(reinterpret<VecI>(magnitude), VecF);
  const VecI is_above = __builtin_convertvector(nearest, VecI) > reinterpret<VecI>(magnitude);
  const VecI cut = reinterpret<VecI>(nearest) + is_above;
  return reinterpret<VecF>(cut | (total & static_cast<std::int32_t>(0x80000000)));
}

/// What is known of one row times kParts vectors of columns before its products are formed.
template <int kBytes, std::size_t kParts>
struct FastUnits {
  typename FastVectors<kBytes, kParts>::I largest[kParts];  ///< E, within what float can have
  typename FastVectors<kBytes, kParts>::I bad;              ///< sign bits
};

/// E of one row times kParts vectors of columns from `column` of the block on. kTerms: how many products, if that is
/// known.
template <int kBytes, std::size_t kParts, int kTerms>
[[gnu::always_inline]] inline void find_units(const Planes& p, const FastRoom& room, int row, int column,
                                              const std::uint32_t* d, FastUnits<kBytes, kParts>& out) {
  using V = FastVectors<kBytes, kParts>;
  using VecI = typename V::I;
  const std::int32_t* row_exponent = room.row_exponent + row;
  const std::int16_t* column_exponent = room.column_exponent + column;
  const int terms = kTerms != 0 ? kTerms : p.k;
  typename V::S largest16 = typename V::S{} + std::int16_t{2 * kFastZero};
#pragma GCC unroll 16
  for (int k = 0; k < terms; ++k) {
    typename V::S exponent;
    load(exponent, column_exponent + k * kFastColumns);
    // Unsigned: what is no ordinary number may have any exponent here, and its results are not used.
    const auto of_row = reinterpret<typename V::SU>(typename V::Pair{} + row_exponent[k * room.row_stride]);
    exponent = reinterpret<typename V::S>(reinterpret<typename V::SU>(exponent) + of_row);
    largest16 = exponent > largest16 ? exponent : largest16;
  }
  typename V::PartS parts[kParts];
  std::memcpy(parts, &largest16, sizeof(largest16));
  VecI bad{};
  for (std::size_t n = 0; n < kParts; ++n) {
    VecI c;
    load(c, d + n * V::kLanes);
    const VecI field = (c >> 23) & 255;
    VecI c_exponent = (field > 1 ? field : (VecI{} + 1)) - 127;
    c_exponent = (c << 1) == 0 ? (VecI{} + kFastZero) : c_exponent;
    const VecI other = __builtin_convertvector(parts[n], VecI);
    const VecI largest = other > c_exponent ? other : c_exponent;
    // From -100 to 120 the unit, the scale and the result are normal floats; far below it lies where all is zero.
    bad |= (120 - largest) | ((largest + 100) & ~(largest + 200));
    out.largest[n] = largest > -100 ? largest : (VecI{} - 100);
  }
  out.bad = bad;
}

/// The same columns' results. False: nothing was written.
template <int kBytes, std::size_t kParts, int kTerms>
[[gnu::always_inline]] inline bool fast_row(const Planes& p, const FastRoom& room, int row, int column,
                                            const FastUnits<kBytes, kParts>& units, std::uint32_t* d) {
  using V = FastVectors<kBytes, kParts>;
  using VecI = typename V::I;
  using VecU = typename V::U;
  using VecF = typename V::F;
  constexpr std::size_t kLast = kParts - 1;
  static_assert(kParts <= 2);
  const float* row_value = room.row_value + row;
  const float* column_value = room.column_value + column;
  const int terms = kTerms != 0 ? kTerms : p.k;
  VecI bad = units.bad;
  VecF scale[kParts];
  VecI total[kParts];
  for (std::size_t n = 0; n < kParts; ++n) {
    VecI c;
    load(c, d + n * V::kLanes);
    scale[n] = reinterpret<VecF>((p.fraction_bits + 127 - units.largest[n]) << 23);
    total[n] = __builtin_convertvector(reinterpret<VecF>(c) * scale[n], VecI);
  }
  for (int first = 0; first < terms; first += kFastChunk) {
    const int end = first + kFastChunk < terms ? first + kFastChunk : terms;
    VecI sum[kParts] = {};
    // Both vectors of one k are spelled out: g++ would interchange two loops.
#pragma GCC unroll 16
    for (int k = first; k < end; ++k) {
      const float a = row_value[k * room.row_stride];
      VecF b;
      load(b, column_value + k * kFastColumns);
      sum[0] += __builtin_convertvector(b * a * scale[0], VecI);
      if constexpr (kParts > 1) {
        load(b, column_value + k * kFastColumns + V::kLanes);
        sum[kLast] += __builtin_convertvector(b * a * scale[kLast], VecI);
#if defined(__x86_64__) && !defined(__clang__)
        if constexpr (kHasAvx2<kBytes>) __asm__("" : "+x"(sum[0]), "+x"(sum[kLast]));
#endif
      }
    }
    for (std::size_t n = 0; n < kParts; ++n) {
      const VecI more = reinterpret<VecI>(reinterpret<VecU>(total[n]) + reinterpret<VecU>(sum[n]));
      bad |= (total[n] ^ more) & (sum[n] ^ more);  // the sign bit tells of an overflow
      total[n] = more;
    }
  }
  VecI result[kParts];
  for (std::size_t n = 0; n < kParts; ++n) {
    const VecF cut = cut_to_float<kBytes>(total[n], bad);
    const VecI unit = (127 - p.fraction_bits + units.largest[n]) << 23;
    result[n] = reinterpret<VecI>(cut * reinterpret<VecF>(unit)) & static_cast<std::int32_t>(p.keep_mask);
  }
  if (any_negative<kBytes>(bad)) [[unlikely]]
    return false;
  for (std::size_t n = 0; n < kParts; ++n) {
    const VecI of_part = result[n];
    std::memcpy(d + n * V::kLanes, &of_part, sizeof(of_part));
  }
  return true;
}

/// kParts vectors of columns from `column` on for `rows` rows from `first` on, but those that are bad: E of all of them
/// first. One row's chain of operations is longer than what a CPU looks ahead; those of several rows overlap.
template <int kBytes, std::size_t kParts, int kTerms>
[[gnu::always_inline]] inline void fast_rows(const Planes& p, const FastRoom& room, int first, int rows, int column,
                                             std::uint32_t* d, std::ptrdiff_t pitch, unsigned* left) {
  constexpr unsigned kBits = ((1u << kBytes / 4 * kParts / kFailUnit) - 1);
  FastUnits<kBytes, kParts> units[static_cast<std::size_t>(kFastRows<kBytes>)];
  for (int i = 0; i < rows; ++i)
    find_units<kBytes, kParts, kTerms>(p, room, first + i, column, d + i * pitch + column, units[i]);
  for (int i = 0; i < rows; ++i)
    if (room.row_bad[first + i] >= 0 &&
        fast_row<kBytes, kParts, kTerms>(p, room, first + i, column, units[i], d + i * pitch + column))
      left[i] &= ~(kBits << column / kFailUnit);
}

/// `rows` rows from `first` on and `columns` columns. left: which columns are still to be formed, a bit for kFailUnit
/// of them.
template <int kBytes, int kTerms>
[[gnu::always_inline]] inline void fast_block(const Planes& p, const FastRoom& room, int first, int rows, int columns,
                                              std::uint32_t* d, std::ptrdiff_t pitch, unsigned* left) {
  constexpr int kLanes = kBytes / 4;
  int column = 0;
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes)
    fast_rows<kBytes, 2, kTerms>(p, room, first, rows, column, d, pitch, left);
  if constexpr (kLanes == kMmaLanes)
    if (column < columns) fast_rows<kBytes, 1, kTerms>(p, room, first, rows, column, d, pitch, left);
}

/// All rows and columns. failed[block * rows + row] says what of kFastColumns columns is still to be formed, a bit for
/// kFailUnit of them; false: nothing is.
template <int kBytes>
[[gnu::always_inline]] inline bool fast_group(const Planes& p, const FastRoom& room, std::uint32_t* d,
                                              std::ptrdiff_t pitch, std::uint8_t* failed) {
  [[maybe_unused]] const std::conditional_t<kHasAvx2<kBytes>, RoundsTowardZero, RoundsAsBefore> rounding;
  constexpr int kRows = kFastRows<kBytes>;
  const int padded = static_cast<int>(room.row_stride);
  for (int i = 0; i < padded; ++i) room.row_bad[i] = 0;
  for (int k = 0; k < p.k; ++k)
    plain_plane<kBytes, true>(p.row[k], p.f16_rows, 0, padded, room.row_value + k * room.row_stride,
                              room.row_exponent + k * room.row_stride, room.row_bad);
  bool any_failed = false;
  for (int first = 0; first < p.columns; first += kFastColumns, failed += p.rows) {
    const int columns = p.columns - first < kFastColumns ? p.columns - first : kFastColumns;
    std::int32_t bad[kFastColumns] = {};
    for (int k = 0; k < p.k; ++k)
      plain_plane<kBytes, false>(p.column[k], p.f16_columns, first, columns, room.column_value + k * kFastColumns,
                                 room.column_exponent + k * kFastColumns, bad);
    std::int32_t any_bad = 0;
    for (int i = 0; i < columns; ++i) any_bad |= bad[i];
    for (int row = 0; row < p.rows; row += kRows) {
      const int rows = p.rows - row < kRows ? p.rows - row : kRows;
      unsigned left[static_cast<std::size_t>(kRows)];
      for (int i = 0; i < rows; ++i) left[i] = (1u << columns / kFailUnit) - 1;
      std::uint32_t* at = d + row * pitch + first;
      if (any_bad >= 0 && p.k == kFastChunk)
        fast_block<kBytes, kFastChunk>(p, room, row, rows, columns, at, pitch, left);
      if (any_bad >= 0 && p.k != kFastChunk) fast_block<kBytes, 0>(p, room, row, rows, columns, at, pitch, left);
      for (int i = 0; i < rows; ++i) {
        failed[row + i] = static_cast<std::uint8_t>(left[i]);
        any_failed = any_failed || left[i] != 0;
      }
    }
  }
  return any_failed;
}

}  // namespace tessera::emulator::math::kernel
