// A matrix operand as the fast kernel wants it: significand and exponent of every element, decoded once.
//
// Elements are stored by planes of k: all rows (or columns) of k = 0, then k = 1, ... so that a vector register holds
// neighbouring columns of one k. Significands are floats in (-2, 2) with sign, at most 11 bits wide: the product of two
// is exact in float. What is not a nonzero number is told by its exponent, chosen such that the sum of two of them and
// any scale still tells: zero is far below, infinity and NaN far above every real exponent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/math/float_format.h"

namespace tessera::emulator::math {

inline constexpr std::int32_t kZeroExponent = -5000;
inline constexpr std::int32_t kInfinityExponent = 20000;
inline constexpr std::int32_t kNanExponent = 40000;
inline constexpr std::int32_t kSpecialExponent = 10000;  ///< at or above: infinity or NaN takes part

/// Sixteen 4- or 6-bit elements as tcgen05's f8f6f4 kinds keep them in 16 bytes of shared memory (8 or 12 bytes of
/// data, low bits first, then padding), to one byte each. e2m1, e2m3, e3m2; 8-bit formats come back unchanged.
std::array<std::byte, 16> unpack_padded(Format format, const std::byte* packed);

/// The code in a byte of an mma.sync f8f6f4 operand: e2m1 stands in bits 5 to 2, the others in the low bits.
constexpr std::uint32_t mma_sync_code(Format format, std::uint32_t byte) {
  if (format == Format::e2m1) return byte >> 2 & 15;
  return format == Format::e2m3 || format == Format::e3m2 ? byte & 63 : byte & 255;
}

/// A k x count matrix of decoded elements. count is A's rows or B's columns.
class MmaOperand {
 public:
  MmaOperand() = default;
  MmaOperand(int count, int k) { resize(count, k); }
  /// Makes room and sets every element to zero. Keeps the memory: reuse one object for many instructions.
  void resize(int count, int k);

  int count() const { return count_; }
  int k() const { return k_; }
  const float* significands(int k) const { return significand_.data() + offset(k); }
  const std::int32_t* exponents(int k) const { return exponent_.data() + offset(k); }

  /// Which way a run of neighbouring elements in memory goes.
  enum class Run : std::uint8_t { along_k, along_index };

  /// Decodes `elements` elements of the format, packed as in memory (4-byte containers for tf32, 2 bytes for f16 and
  /// bf16, one byte for fp8 and, value in the low bits, for fp6 and fp4), starting at (index, k). negate flips signs.
  void decode(Format format, const std::byte* packed, int elements, int index, int k, Run run, bool negate = false);
  /// One element from its code.
  void set(Format format, std::uint32_t code, int index, int k, bool negate = false);
  /// Multiplies k .. k + length - 1 of one row or column by a ue8m0 scale.
  void scale(std::uint8_t ue8m0, int index, int k, int length);

 private:
  std::size_t offset(int k) const { return static_cast<std::size_t>(k) * stride_; }

  int count_ = 0;
  int k_ = 0;
  std::size_t stride_ = 0;  ///< count rounded up to whole vectors; the padding is zero
  std::vector<float> significand_;
  std::vector<std::int32_t> exponent_;
};

}  // namespace tessera::emulator::math
