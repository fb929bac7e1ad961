// quantize_blocks on the host, in the plainest form; every bit of a kernel's result is compared. Definitions:
// templates/spec/quantize_blocks.h, all arithmetic fp32.
#pragma once

#include <cstdint>

#include "reference/comparison.h"
#include "reference/tensor.h"
#include "tessera/spec/operand_type.h"

namespace tessera::reference {

struct QuantizeBlocksRule {
  ScaleBlock block = ScaleBlock::square;
  ScaleValues numbers = ScaleValues::any;
};

/// The factor of a block whose largest magnitude is amax; not NaN.
float block_factor(float amax, ScaleValues numbers);

struct QuantizedBlocks {
  Tensor values;   ///< e4m3 [l, rows, k]
  Tensor factors;  ///< f32 [l, ceil(rows / 128) or rows, ceil(k / 128)]
};

/// x: [l, rows, k] of f32, f16 or bf16.
QuantizedBlocks quantize_blocks(const TensorView& x, QuantizeBlocksRule facts);

Comparison check_quantize_blocks(const TensorView& x, QuantizeBlocksRule facts, const TensorView& values,
                                 const TensorView& factors);

}  // namespace tessera::reference
