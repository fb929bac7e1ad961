// Integer and bit instructions as pure functions. PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision
// Integer Arithmetic Instructions", "Logic and Shift Instructions".
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "emulator/math/bits.h"

namespace tessera::emulator::ops {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
inline constexpr unsigned kBits = sizeof(T) * 8;

/// vabsdiff2, vabsdiff4 of unsigned parts: |a - b| of each; with .add their sum and c, else they replace all of c.
template <class Part, bool kAdds>
std::uint32_t vabsdiff(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  constexpr int kBits = 8 * sizeof(Part);
  std::uint32_t sum = c;
  std::uint32_t parts = 0;
  for (int at = 0; at < 32; at += kBits) {
    const int difference = static_cast<Part>(a >> at) - static_cast<Part>(b >> at);
    const auto distance = static_cast<std::uint32_t>(difference < 0 ? -difference : difference);
    sum += distance;
    parts |= distance << at;
  }
  return kAdds ? sum : parts;
}

/// Arithmetic modulo 2^n, for signed types too.
template <class T>
constexpr T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b)));
}
template <class T>
constexpr T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b)));
}
/// The product in twice the width (64-bit types: 128).
template <class T>
constexpr auto wide_product(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    using Wide = std::conditional_t<std::is_signed_v<T>, math::Int128, math::Uint128>;
    return static_cast<Wide>(a) * static_cast<Wide>(b);
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<Wide>(a) * static_cast<Wide>(b);
  }
}
template <class T>
constexpr T mul_lo(T a, T b) {
  return static_cast<T>(
      static_cast<Unsigned<T>>(std::uint64_t{static_cast<Unsigned<T>>(a)} * static_cast<Unsigned<T>>(b)));
}
template <class T>
constexpr T mul_hi(T a, T b) {
  return static_cast<T>(wide_product(a, b) >> kBits<T>);
}
/// Division by zero gives all ones, quotient and remainder, signed and unsigned, 16 to 64 bits: the code that ptxas
/// makes for sm_90a selects them (H200). The most negative value by -1 wraps.
template <class T>
constexpr T div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return wrap_sub(T{0}, a);
  return static_cast<T>(a / b);
}
template <class T>
constexpr T rem(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
constexpr T add_sat(T a, T b) {
  const auto sum = static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b);
  if (sum > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
  if (sum < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  return static_cast<T>(sum);
}
template <class T>
constexpr T sub_sat(T a, T b) {
  const auto difference = static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b);
  if (difference > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
  if (difference < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  return static_cast<T>(difference);
}
template <class T>
constexpr T shl(T a, std::uint32_t n) {
  return n >= kBits<T> ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(a) << n);
}
template <class T>
constexpr T shr(T a, std::uint32_t n) {
  return static_cast<T>(a >> (n >= kBits<T> ? kBits<T> - 1 : n)) &
         static_cast<T>(std::is_signed_v<T> || n < kBits<T> ? ~T{0} : T{0});
}
constexpr std::uint32_t funnel_left(std::uint32_t low, std::uint32_t high, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) << n >> 32);
}
constexpr std::uint32_t funnel_right(std::uint32_t low, std::uint32_t high, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> n);
}
/// Position and length count modulo 256 in 32 bits; in 64 bits a large one is
/// large (H200; the manual says modulo 256 for both).
template <class T>
constexpr unsigned field_operand(std::uint32_t value) {
  return sizeof(T) == 4 ? value & 0xFF : value < 0x100 ? value : 0x100;
}
template <class T>
constexpr T bfe(T a, std::uint32_t position, std::uint32_t length) {
  constexpr unsigned kMsb = kBits<T> - 1;
  const unsigned pos = field_operand<T>(position);
  const unsigned len = field_operand<T>(length);
  if (len == 0) return 0;
  const auto u = static_cast<Unsigned<T>>(a);
  const unsigned sign_at = pos + len - 1 < kMsb ? pos + len - 1 : kMsb;
  const bool sign = std::is_signed_v<T> && ((u >> sign_at) & 1) != 0;
  const Unsigned<T> shifted = pos > kMsb ? Unsigned<T>{0} : static_cast<Unsigned<T>>(u >> pos);
  const unsigned available = pos > kMsb ? 0 : kMsb - pos + 1;
  const unsigned used = len < available ? len : available;
  const Unsigned<T> mask = used >= kBits<T> ? ~Unsigned<T>{0} : static_cast<Unsigned<T>>((Unsigned<T>{1} << used) - 1);
  return static_cast<T>(
      static_cast<Unsigned<T>>((shifted & mask) | (sign ? static_cast<Unsigned<T>>(~mask) : Unsigned<T>{0})));
}
template <class T>
constexpr T bfi(T a, T b, std::uint32_t position, std::uint32_t length) {
  constexpr unsigned kMsb = kBits<T> - 1;
  const unsigned pos = field_operand<T>(position);
  const unsigned len = field_operand<T>(length);
  T result = b;
  for (unsigned i = 0; i < len && pos + i <= kMsb; ++i)
    result = static_cast<T>((result & ~(T{1} << (pos + i))) | (((a >> i) & T{1}) << (pos + i)));
  return result;
}
/// The position of the most significant non-sign bit; all ones when there is none. shift: how far it is from the top.
template <class T>
constexpr std::uint32_t bfind(T a, bool shift) {
  Unsigned<T> u = static_cast<Unsigned<T>>(a);
  if constexpr (std::is_signed_v<T>)
    if (a < 0) u = static_cast<Unsigned<T>>(~u);
  if (u == 0) return 0xFFFFFFFF;
  const auto zeros = static_cast<std::uint32_t>(std::countl_zero(u));
  return shift ? zeros : kBits<T> - 1 - zeros;
}
template <class T>
constexpr T brev(T a) {
  T result = 0;
  for (unsigned i = 0; i < kBits<T>; ++i) result = static_cast<T>(result | (((a >> i) & T{1}) << (kBits<T> - 1 - i)));
  return result;
}
/// Bit i of the table is the result where (a, b, c) spell i. Without branches: the table is the same for all lanes.
constexpr std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  const auto term = [table](unsigned i) { return std::uint32_t{0} - ((table >> i) & 1); };
  return (~a & ((~b & ((~c & term(0)) | (c & term(1)))) | (b & ((~c & term(2)) | (c & term(3)))))) |
         (a & ((~b & ((~c & term(4)) | (c & term(5)))) | (b & ((~c & term(6)) | (c & term(7))))));
}
constexpr std::uint32_t prmt_byte(std::uint64_t source, std::uint32_t selector) {
  const auto byte = static_cast<std::uint32_t>(source >> (8 * (selector & 7))) & 0xFF;
  return (selector & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFFu : 0u;
}
/// The default mode: each nibble of the selector picks a byte of {b, a}, bit 3 replicates its sign.
constexpr std::uint32_t prmt(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t source = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) result |= prmt_byte(source, (selector >> (4 * i)) & 0xF) << (8 * i);
  return result;
}
/// f4e: bytes i, i+1, ...; b4e: bytes i, i-1, ...; rc8: byte i four times; ecl, ecr: edge clamp; rc16: half i twice.
enum class PrmtMode : std::uint8_t { f4e, b4e, rc8, ecl, ecr, rc16 };
constexpr std::uint32_t prmt_mode(std::uint32_t a, std::uint32_t b, std::uint32_t selector, PrmtMode mode) {
  const std::uint64_t source = std::uint64_t{b} << 32 | a;
  const std::uint32_t s = selector & 3;
  std::uint32_t result = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::uint32_t pick = 0;
    switch (mode) {
      case PrmtMode::f4e:
        pick = s + i;
        break;
      case PrmtMode::b4e:
        pick = (s - i) & 7;
        break;
      case PrmtMode::rc8:
        pick = s;
        break;
      case PrmtMode::ecl:
        pick = i > s ? i : s;
        break;
      case PrmtMode::ecr:
        pick = i < s ? i : s;
        break;
      case PrmtMode::rc16:
        pick = (s & 1) * 2 + (i & 1);
        break;
    }
    result |= (static_cast<std::uint32_t>(source >> (8 * pick)) & 0xFF) << (8 * i);
  }
  return result;
}
constexpr std::uint32_t bmsk(std::uint32_t position, std::uint32_t length, bool clamp) {
  const std::uint32_t pos = clamp ? position : position & 31;
  const std::uint32_t len = clamp ? length : length & 31;
  if (pos >= 32 || len == 0) return 0;
  const std::uint64_t ones = len >= 32 ? 0xFFFFFFFFu : (std::uint64_t{1} << len) - 1;
  return static_cast<std::uint32_t>(ones << pos);
}
/// Four-way byte dot product: A and B are the signedness of the byte lanes.
template <class A, class B>
constexpr std::uint32_t dp4a(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  for (unsigned i = 0; i < 4; ++i)
    c += static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<A>(a >> (8 * i))) *
                                    static_cast<std::int32_t>(static_cast<B>(b >> (8 * i))));
  return c;
}

}  // namespace tessera::emulator::ops
