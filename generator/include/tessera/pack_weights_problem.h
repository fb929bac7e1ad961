// The Problem of pack_weights; what facts, pins and hints are: tessera/any_problem.h. What it computes:
// docs/operators.md.
#pragma once

#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/block_scale.h"

namespace tessera {

/// Weights of four bits and their scales to the layout that products on sm_90a read.
struct PackWeights {
  static constexpr std::string_view kOperator = "pack_weights";

  Arch arch{};
  BlockFormat format = BlockFormat::mxfp4;   ///< mxfp4 or nvfp4
  ScaleForm scale_form = ScaleForm::plain;  ///< of the scales that are read
  Hint l = kUnknownHint, n = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const PackWeights&, const PackWeights&) = default;
};

template <>
const OperatorType& operator_type<PackWeights>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> pack_weights_fields();

}  // namespace tessera
