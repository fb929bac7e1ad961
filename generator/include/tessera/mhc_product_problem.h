// The Problem of mhc_product; what facts, pins and hints are: tessera/any_problem.h. What it computes:
// docs/operators.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"

namespace tessera {

/// The product before mHC's mixes: d = a b^T of bf16 rows by a few of fp32, and the rows' sums of squares.
struct MhcProduct {
  static constexpr std::string_view kOperator = "mhc_product";

  Arch arch{};
  int n = 24;      ///< rows of b: a multiple of 8
  int splits = 1;  ///< parts of k that stay apart in d and sum_squares
  std::optional<int> warps_m{};
  std::optional<int> warps_k{};
  std::optional<int> ctas{};
  Hint m = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const MhcProduct&, const MhcProduct&) = default;
};

template <>
const OperatorType& operator_type<MhcProduct>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> mhc_product_fields();

}  // namespace tessera
