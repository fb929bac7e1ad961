// The Problem of copy2d; what facts, pins and hints are: tessera/any_problem.h.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/types.h"

namespace tessera {

/// TMA load and store of one tile after the other: y = x for a tensor of rank 1..5. The smallest operator.
struct Copy2d {
  static constexpr std::string_view kOperator = "copy2d";

  Arch arch{};
  DType dtype = DType::f32;
  int rank = 2;
  std::optional<int> tile_inner{};  ///< box extent along dimension 0, elements
  std::optional<int> tile_outer{};  ///< box extent along dimension 1, elements
  std::optional<Swizzle> swizzle{};
  friend bool operator==(const Copy2d&, const Copy2d&) = default;
};

template <>
const OperatorType& operator_type<Copy2d>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> copy2d_fields();

}  // namespace tessera
