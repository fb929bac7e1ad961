// The Problem of topk; what facts, pins and hints are: tessera/any_problem.h. What it computes: docs/operators.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/topk_types.h"
#include "tessera/spec/types.h"

namespace tessera {

/// The k largest elements of each row, exactly: their indices, on request their values.
struct Topk {
  static constexpr std::string_view kOperator = "topk";

  Arch arch{};
  DType dtype = DType::f32;  ///< of scores: f32, f16 or bf16
  int k = 512;               ///< at most 2,048
  Ties ties = Ties::smaller;
  ResultOrder order = ResultOrder::index;
  RowRange range = RowRange::all;
  IndexForm index_form = IndexForm::columns;
  WithValues values = WithValues::off;
  WithGuesses guesses = WithGuesses::off;
  std::optional<int> threads{};  ///< of a CTA: 512 (two are resident) or 1,024
  std::optional<int> ctas{};     ///< of a cluster, which share a row: 1, 2, 4, 8 or 16
  Hint m = kUnknownHint;         ///< rows
  Hint n = kUnknownHint;         ///< columns
  friend bool operator==(const Topk&, const Topk&) = default;
};

template <>
const OperatorType& operator_type<Topk>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> topk_fields();

}  // namespace tessera
