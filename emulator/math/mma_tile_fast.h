// The body of mma_tile for numbers of ordinary size: f32 results, every operand zero or of an exponent in [-62, 60].
// Such elements are floats, and a product of two is exact in float. So a term is two multiplications and a cut:
// (a * b) * 2^(F - E), converted to int32. E is looked for in 16-bit lanes. What does not fit (an infinity, a sum
// beyond 2^31 units, an E that leaves float's range) is left alone and named in `failed`: mma_tile_kernel.h forms it.
//
// Compiled once for each instruction set (see mma_tile.cpp).
#pragma once

#include <cstdint>

#include "emulator/math/mma_tile_kernel.h"

namespace tessera::emulator::math::kernel {

constexpr int kFastColumns = 2 * kMmaLanes;  ///< of a block
constexpr int kFastChunk = 16;               ///< products that stay below 2^31 units together (F at most 25)
constexpr int kLeastExponent = -62;          ///< of an element
constexpr int kMostExponent = 60;
constexpr std::int16_t kFastZero = -8000;  ///< below every sum of two real exponents

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
  typedef std::int32_t Pair __attribute__((vector_size(kBytes / 2 * kParts)));
};

/// Whether a lane's sign bit is set.
template <int kBytes>
[[gnu::always_inline]] inline bool any_negative(const typename FastVectors<kBytes, 1>::I& lanes) {
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
    told |= (kMostExponent - e) | ((e - kLeastExponent) & (magnitude | -magnitude));
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
#endif
  const VecI sign = total >> 31;
  const VecU magnitude = reinterpret<VecU>(total ^ sign) - reinterpret<VecU>(sign);
  bad |= reinterpret<VecI>(magnitude + 0x200);  // so that a float that was rounded up still is an int32
  const VecF nearest = __builtin_convertvector(reinterpret<VecI>(magnitude), VecF);
  const VecI is_above = __builtin_convertvector(nearest, VecI) > reinterpret<VecI>(magnitude);
  const VecI cut = reinterpret<VecI>(nearest) + is_above;
  return reinterpret<VecF>(cut | (total & static_cast<std::int32_t>(0x80000000)));
}

/// One row times kParts vectors of columns from `column` of the block on. False: nothing was written.
template <int kBytes, std::size_t kParts>
[[gnu::always_inline]] inline bool fast_row(const Planes& p, const FastRoom& room, int row, int column,
                                            std::uint32_t* d) {
  using V = FastVectors<kBytes, kParts>;
  using VecI = typename V::I;
  using VecU = typename V::U;
  using VecF = typename V::F;
  const float* row_value = room.row_value + row;
  const std::int32_t* row_exponent = room.row_exponent + row;
  const std::int16_t* column_exponent = room.column_exponent + column;
  typename V::S largest16 = typename V::S{} + std::int16_t{2 * kFastZero};
  for (int k = 0; k < p.k; ++k) {
    typename V::S exponent;
    load(exponent, column_exponent + k * kFastColumns);
    exponent += reinterpret<typename V::S>(typename V::Pair{} + row_exponent[k * room.row_stride]);
    largest16 = exponent > largest16 ? exponent : largest16;
  }
  typename V::PartS parts[kParts];
  std::memcpy(parts, &largest16, sizeof(largest16));
  VecI bad{};
  VecI unit[kParts];
  VecF scale[kParts];
  VecI total[kParts];
  for (std::size_t n = 0; n < kParts; ++n) {
    VecI c;
    load(c, d + n * V::kLanes);
    const VecI field = (c >> 23) & 255;
    VecI c_exponent = (field > 1 ? field : (VecI{} + 1)) - 127;
    c_exponent = (c << 1) == 0 ? (VecI{} + kFastZero) : c_exponent;
    const VecI other = __builtin_convertvector(parts[n], VecI);
    VecI largest = other > c_exponent ? other : c_exponent;
    // From -100 to 120 the unit, the scale and the result are normal floats; far below it lies where all is zero.
    bad |= (120 - largest) | ((largest + 100) & ~(largest + 200));
    largest = largest > -100 ? largest : (VecI{} - 100);
    scale[n] = reinterpret<VecF>((p.fraction_bits + 127 - largest) << 23);
    unit[n] = (127 - p.fraction_bits + largest) << 23;
    total[n] = __builtin_convertvector(reinterpret<VecF>(c) * scale[n], VecI);
  }
  for (int first = 0; first < p.k; first += kFastChunk) {
    const int end = first + kFastChunk < p.k ? first + kFastChunk : p.k;
    VecI sum[kParts] = {};
    for (int k = first; k < end; ++k) {
      const float a = row_value[k * room.row_stride];
      for (std::size_t n = 0; n < kParts; ++n) {
        VecF b;
        load(b, room.column_value + k * kFastColumns + column + n * V::kLanes);
        sum[n] += __builtin_convertvector(b * a * scale[n], VecI);
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
    result[n] = reinterpret<VecI>(cut * reinterpret<VecF>(unit[n])) & static_cast<std::int32_t>(p.keep_mask);
  }
  if (any_negative<kBytes>(bad)) [[unlikely]]
    return false;
  std::memcpy(d, result, sizeof(result));
  return true;
}

/// All rows and columns. failed[block * rows + row] says what of kFastColumns columns is still to be formed, a bit for
/// kFailUnit of them; false: nothing is.
template <int kBytes>
[[gnu::always_inline]] inline bool fast_group(const Planes& p, const FastRoom& room, std::uint32_t* d,
                                              std::ptrdiff_t pitch, std::uint8_t* failed) {
  constexpr int kLanes = kBytes / 4;
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
    for (int row = 0; row < p.rows; ++row) {
      std::uint32_t* at = d + row * pitch + first;
      unsigned left = (1u << columns / kFailUnit) - 1;
      if (any_bad >= 0 && room.row_bad[row] >= 0) {
        int column = 0;
        for (; column + 2 * kLanes <= columns; column += 2 * kLanes)
          if (fast_row<kBytes, 2>(p, room, row, column, at + column))
            left &= ~(((1u << 2 * kLanes / kFailUnit) - 1) << column / kFailUnit);
        if constexpr (kLanes == kMmaLanes)
          if (column < columns && fast_row<kBytes, 1>(p, room, row, column, at + column))
            left &= ~(((1u << kLanes / kFailUnit) - 1) << column / kFailUnit);
      }
      failed[row] = static_cast<std::uint8_t>(left);
      any_failed = any_failed || left != 0;
    }
  }
  return any_failed;
}

}  // namespace tessera::emulator::math::kernel
