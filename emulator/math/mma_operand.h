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

  /// The same for who decodes every element: those of an object that has this shape already keep their values.
  void reshape(int count, int k) {
    if (count != count_ || k != k_ || has_codes_) resize(count, k);
  }

  int count() const { return count_; }
  int k() const { return k_; }
  /// Not of codes: see decode_codes().
  const float* significands(int k) const { return significand_.data() + offset(k); }
  const std::int32_t* exponents(int k) const { return exponent_.data() + offset(k); }

  /// Which way a run of neighbouring elements in memory goes.
  enum class Run : std::uint8_t { along_k, along_index };

  /// An operand of f16 or bf16 may be kept as its codes, which the kernel decodes where it needs them. Makes room, with
  /// count a multiple of 8; take_codes() then brings all elements, eight at a time, all of them along `run`.
  void expect_codes(Format format, int count, int k, Run run);
  void take_codes(const std::byte* eight, int index, int k, bool negate);
  bool has_codes() const { return has_codes_; }
  Format format_of_codes() const { return format_; }
  /// The codes of one k; order_codes() comes first.
  const std::uint16_t* codes(int k) const { return code_planes_.data() + offset(k); }
  void order_codes() const;
  /// To significands and exponents: those of codes that were taken. Nothing for other operands.
  void decode_codes() const;

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
  bool has_codes_ = false;
  Format format_ = Format::bf16;
  Run run_ = Run::along_k;
  mutable std::vector<float> significand_;  ///< mutable: of codes, made when somebody asks
  mutable std::vector<std::int32_t> exponent_;
  std::vector<std::uint16_t> code_rows_;  ///< index * k_ + k, as they come along k
  mutable std::vector<std::uint16_t> code_planes_;
};

}  // namespace tessera::emulator::math
