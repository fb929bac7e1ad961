// The Problem of rows; what facts, pins and hints are: tessera/any_problem.h. What it computes: docs/rows.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/row_chain.h"
#include "tessera/spec/types.h"

namespace tessera {

/// A chain of parts over the rows of x.
struct Rows {
  static constexpr std::string_view kOperator = "rows";

  Arch arch{};
  DType dtype = DType::bf16;  ///< of x, residual and weights: f32, f16 or bf16
  int columns = 4096;         ///< of a row, after a gate
  RowChain chain{{{.kind = RowPart::residual, .is_stored = true},
                  {.kind = RowPart::rmsnorm},
                  {.kind = RowPart::store, .is_same = true}}};
  std::optional<int> threads_of_row{};
  std::optional<int> rows_of_cta{};
  std::optional<int> ctas_of_row{};
  std::optional<int> turns_of_row{};
  Hint rows = kUnknownHint;
  friend bool operator==(const Rows&, const Rows&) = default;
};

template <>
const OperatorType& operator_type<Rows>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> rows_fields();

}  // namespace tessera
