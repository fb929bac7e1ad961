// Whether a rule of a launch's domain holds for two values: asked before a launch on a device, and offline.
#pragma once

#include <cstdint>

#include "tessera/launch.h"

namespace tessera {

/// Of 0 nothing is a multiple here, of -1 everything.
constexpr bool holds(std::int64_t lhs, Relation relation, std::int64_t rhs) noexcept {
  switch (relation) {
    case Relation::at_least:
      return lhs >= rhs;
    case Relation::at_most:
      return lhs <= rhs;
    case Relation::equal:
      return lhs == rhs;
    case Relation::multiple_of:
      return rhs != 0 && (rhs == -1 || lhs % rhs == 0);
  }
  return false;
}

}  // namespace tessera
