// mxf4 and mxf4nvf4: tiles of e2m1 products with block scales, K = 64 an instruction. The fast form of fp4_output.
//
// Sixteen e2m1 products always sum exactly in a float (multiples of 1/4 below 2^10), and so does that sum times two
// four-bit scale significands. Only the step that adds the four scaled sums and C cuts, and it runs in 64-bit integers.
// Model: published, unverified (see Fp4Path).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/math/float_format.h"
#include "emulator/math/mma_path.h"

namespace tessera::emulator::math {

/// A k x count matrix of e2m1 values with a scale per 16 k (a block of 32 counts as two equal ones).
class Fp4Operand {
 public:
  Fp4Operand() = default;
  Fp4Operand(int count, int k) { resize(count, k); }
  /// Makes room; values are zero, scales one. k is a multiple of 64.
  void resize(int count, int k);
  int count() const { return count_; }
  int k() const { return k_; }

  /// Two elements per byte, the low nibble at the lower k; `elements` is even.
  void decode(const std::byte* packed, int elements, int index, int k, bool negate = false);
  /// The scale of k .. k + block - 1; block is 16 or 32, format ue4m3 or ue8m0.
  void scale(Format format, std::uint8_t code, int index, int k, int block);

  const float* values(int k) const { return value_.data() + static_cast<std::size_t>(k) * stride_; }
  const float* scale_significands(int k) const {
    return significand_.data() + static_cast<std::size_t>(k / 16) * stride_;
  }
  const std::int32_t* scale_exponents(int k) const {
    return exponent_.data() + static_cast<std::size_t>(k / 16) * stride_;
  }

 private:
  int count_ = 0;
  int k_ = 0;
  std::size_t stride_ = 0;
  std::vector<float> value_;        ///< the value
  std::vector<float> significand_;  ///< of the scale, [1, 2), less when subnormal
  std::vector<std::int32_t> exponent_;
};

/// D[row][column] += sum over k, one step per 64 k, in order. d points to rows.count() rows of `pitch` f32 words.
void fp4_tile(const Fp4Path& path, const Fp4Operand& rows, const Fp4Operand& columns, std::uint32_t* d, int pitch);

}  // namespace tessera::emulator::math
