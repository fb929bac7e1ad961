// The Problem of moe_route; what facts, pins and hints are: tessera/any_problem.h. What it computes: docs/operators.md.
#pragma once

#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/route_types.h"

namespace tessera {

/// A router of experts: each token's top k of them and their weights from logits, and the lists of each expert's rows
/// that grouped products and row operators read.
struct MoeRoute {
  static constexpr std::string_view kOperator = "moe_route";

  Arch arch{};
  DType dtype = DType::f32;  ///< of logits: f32, f16 or bf16
  int experts = 256;         ///< columns of logits: a multiple of 8, at most 512
  int top_k = 8;             ///< experts of a token, at most 16
  int expert_groups = 1;     ///< neighbouring experts that are chosen, or not, together first (DeepSeek-V3: 8)
  int topk_groups = 1;       ///< how many of these groups a token's experts are from (DeepSeek-V3: 4)
  Scoring scoring = Scoring::sigmoid;
  Bias bias = Bias::none;                     ///< column: added for the choice of experts, not to their weights
  Renormalize renormalize = Renormalize::on;  ///< whether a token's weights are divided by their sum
  Grouping grouping = Grouping::contiguous;   ///< which lists are written: as gemm's `grouping` reads them
  int alignment = 1;                          ///< contiguous: rows of a group are rounded up to a multiple of it
  Hint m = kUnknownHint;
  friend bool operator==(const MoeRoute&, const MoeRoute&) = default;
};

template <>
const OperatorType& operator_type<MoeRoute>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> moe_route_fields();

}  // namespace tessera
