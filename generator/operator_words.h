// Small texts and expressions that every operator's planner uses.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "tessera/launch.h"
#include "tessera/spec/types.h"

namespace tessera {

/// "sw128", "swnone": a swizzle in a kernel's name.
std::string_view swizzle_name(Swizzle swizzle) noexcept;
/// "sm90a": a target in a kernel's name.
std::string arch_name(std::string_view arch);
TensorMapType tensor_map_type(DType dtype) noexcept;
TensorMapSwizzle tensor_map_swizzle(Swizzle swizzle) noexcept;

/// An expression from a format string: expression("{}_stride{} * {}", "x", 1, 4).
template <class... Args>
Expression expression(fmt::format_string<Args...> format, Args&&... args) {
  return Expression::parse(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
