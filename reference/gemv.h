// The product of a block-scaled matrix and vector in float64, and how wrong a right kernel may be.
//
// Products of e2m1 numbers and their sum over a block are exact, and so is that times both scales. What rounds is the
// sum over blocks, in fp32: at most one rounding for each addition on the way of one block's sum to the result,
// relative to the sum of magnitudes; then the factors, and the rounding to the type of c. With values of 8 bits
// products are exact and their sums over a block round too: the magnitudes are then those of products.
#pragma once

#include <cstdint>
#include <span>

#include "reference/comparison.h"
#include "reference/tensor.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

struct GemvOperands {
  std::span<const std::uint8_t> a, sfa, b, sfb;
  BlockFormat format = BlockFormat::nvfp4, b_format = BlockFormat::nvfp4;  ///< of a and b
  ScaleForm form = ScaleForm::plain;
  std::int64_t l = 1, m = 0, k = 0, b_rows = 1;
  double factor = 1;  ///< alpha and both global scales
};

/// c: [l, m]. Every element is checked. Throws Error{usage} for spans of a wrong size.
Comparison check_gemv(const GemvOperands& operands, const TensorView& c);

}  // namespace tessera::reference
