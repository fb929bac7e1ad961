// A Problem that the library does not know, and the row for it that generator/registry.cpp has for its own.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/types.h"

namespace tessera {

/// y = activation(alpha x), fp32.
struct ToyScale {
  static constexpr std::string_view kOperator = "toy_scale";

  Arch arch{};
  Activation activation = Activation::none;  ///< none or relu
  std::optional<int> threads{};              ///< of a CTA
  Hint n = kUnknownHint;
  friend bool operator==(const ToyScale&, const ToyScale&) = default;
};

template <>
const OperatorType& operator_type<ToyScale>() noexcept;

std::span<const Selector> toy_scale_fields();

}  // namespace tessera
