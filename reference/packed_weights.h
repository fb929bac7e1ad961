// Weights of four bits in blocks, as products on sm_90a read them: made from rows, read back in float64. The layout:
// spec/packed_weights.h.
#pragma once

#include <cstdint>
#include <span>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "spec/packed_weights.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

/// Weights as they come: values [l, n, k / 2], two codes a byte, and scales in a form.
struct WeightRows {
  OperandType type = OperandType::mxfp4;
  std::span<const std::byte> values, scales;
  ScaleForm form = ScaleForm::plain;
  std::int64_t l = 1, n = 0, k = 0;
};

/// How a format's weights are packed.
PackedWeights packed_weights(OperandType type);

/// [l, ceil(n / 64), ceil(k / 128), bytes of a block]. Throws Error{usage} for spans of other sizes.
Tensor pack_weights(const WeightRows& rows);

/// Random codes and scales, packed. integer: whole numbers under scales of 1 and 2.
Tensor random_packed_weights(OperandType type, std::int64_t l, std::int64_t n, std::int64_t k, Fill fill,
                             std::uint64_t seed, std::uint64_t stream);

/// [l, n, k] in float64: code times scale. Throws Error{usage} for a shape that is not that of so many weights.
Tensor decode_packed_weights(OperandType type, const TensorView& packed, std::int64_t n, std::int64_t k);

/// Packed bytes beside those that the rows give.
Comparison check_pack_weights(const WeightRows& rows, const TensorView& packed);

}  // namespace tessera::reference
