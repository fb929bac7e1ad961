// The Problem of pack_weights; what facts, pins and hints are: tessera/any_problem.h. What it computes:
// docs/operators.md.
#pragma once

#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Weights of four bits and their scales to the layout that products on sm_90a read.
struct PackWeights {
  static constexpr std::string_view kOperator = "pack_weights";

  Arch arch{};
  WeightFormat format = WeightFormat::mxfp4;
  ScaleForm scale_form = ScaleForm::plain;    ///< of the scales of mxfp4 and nvfp4
  DType dtype = DType::bf16;                  ///< of the scales of int4: bf16 or f16, the type of the activations
  int group = 128;                            ///< int4: k that share a scale, 32, 64 or 128
  ZeroPoints zero_points = ZeroPoints::none;  ///< of int4
  Hint l = kUnknownHint, n = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const PackWeights&, const PackWeights&) = default;
};

template <>
const OperatorType& operator_type<PackWeights>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> pack_weights_fields();

}  // namespace tessera
