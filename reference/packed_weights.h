// Weights of four bits in blocks, as products on sm_90a read them: made from rows, read back in float64. The layout:
// spec/packed_weights.h. A weight of int4 is code less zero point, times its scale, rounded to the scale's type: what
// the tensor cores multiply.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "spec/packed_weights.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

/// What packed weights are of: dtype that of int4's scales; of those beside 8-bit activations bf16.
struct WeightFacts {
  PackedWeights weights{};
  DType dtype = DType::bf16;
};
WeightFacts weight_facts(OperandType type, int group, ZeroPoints zero_points, DType dtype);

/// Weights as they come: values [l, n, k / 2], two codes a byte; scales in a form, or 16-bit ones [l, n, k / group] and
/// zero points of that shape.
struct WeightRows {
  WeightFacts facts{};
  std::span<const std::byte> values, scales;
  std::span<const std::byte> zeros{};
  ScaleForm form = ScaleForm::plain;
  std::int64_t l = 1, n = 0, k = 0;
};

/// [l, ceil(n / 64), ceil(k / 128), bytes of a block]. Throws Error{usage} for spans of other sizes.
Tensor pack_weights(const WeightRows& rows);

/// Random codes, scales and zero points in rows. integer: whole numbers under scales of 1 and 2.
struct WeightTensors {
  Tensor values, scales, zeros;
};
WeightTensors random_weight_rows(const WeightFacts& facts, std::int64_t l, std::int64_t n, std::int64_t k, Fill fill,
                                 std::uint64_t seed, std::uint64_t stream);
/// The same, packed.
Tensor random_packed_weights(const WeightFacts& facts, std::int64_t l, std::int64_t n, std::int64_t k, Fill fill,
                             std::uint64_t seed, std::uint64_t stream);

/// [l, n, k] in float64. Throws Error{usage} for a shape that is not that of so many weights.
Tensor decode_packed_weights(const WeightFacts& facts, const TensorView& packed, std::int64_t n, std::int64_t k);

/// The same of weights that are not packed.
Tensor decode_weight_rows(const WeightRows& rows);

/// Packed bytes beside those that the rows give.
Comparison check_pack_weights(const WeightRows& rows, const TensorView& packed);

}  // namespace tessera::reference
