// Integer matrix instructions: exact sums, wrapping at 32 bits, or clamped with .satfinite (PTX ISA, mma, wgmma;
// document only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::emulator::math {

enum class IntegerFormat : std::uint8_t { s8, u8, s4, u4 };

/// A k x count matrix of small integers, by planes of k as in MmaOperand.
class IntegerOperand {
 public:
  IntegerOperand() = default;
  IntegerOperand(int count, int k) { resize(count, k); }
  void resize(int count, int k);
  int count() const { return count_; }
  int k() const { return k_; }
  const std::int16_t* plane(int k) const { return value_.data() + static_cast<std::size_t>(k) * stride_; }

  enum class Run : std::uint8_t { along_k, along_index };
  /// `elements` packed elements from (index, k) on: a byte each, or two 4-bit ones per byte, low nibble first (then
  /// `elements` is even).
  void decode(IntegerFormat format, const std::byte* packed, int elements, int index, int k, Run run);

 private:
  int count_ = 0;
  int k_ = 0;
  std::size_t stride_ = 0;
  std::vector<std::int16_t> value_;
};

/// D[row][column] += sum over k of products. saturate: the exact sum clamps to s32, after every `step` products (an
/// instruction's K); otherwise it wraps.
void integer_tile(const IntegerOperand& rows, const IntegerOperand& columns, std::int32_t* d, int pitch, bool saturate,
                  int step);

enum class BitOperation : std::uint8_t { and_popc, xor_popc };

/// b1: d + the number of ones in the AND or XOR of two bit strings of `words` 32-bit words; wraps.
std::int32_t bit_dot(BitOperation operation, const std::uint32_t* a, const std::uint32_t* b, int words, std::int32_t d);

}  // namespace tessera::emulator::math
