// The Problem of quantize_blocks; what facts, pins and hints are: tessera/any_problem.h. What it computes:
// docs/operators.md.
#pragma once

#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Rows to e4m3 with fp32 factors for blocks, as products with a_scale_block and b_scale_block read them.
struct QuantizeBlocks {
  static constexpr std::string_view kOperator = "quantize_blocks";

  Arch arch{};
  DType dtype = DType::bf16;                    ///< of x
  ScaleBlock scale_block = ScaleBlock::square;  ///< elements that share a factor
  ScaleValues scale_values = ScaleValues::any;  ///< fp32 numbers, or powers of two alone
  Hint l = kUnknownHint, rows = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const QuantizeBlocks&, const QuantizeBlocks&) = default;
};

template <>
const OperatorType& operator_type<QuantizeBlocks>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> quantize_blocks_fields();

}  // namespace tessera
