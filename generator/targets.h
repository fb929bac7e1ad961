// Which devices load the code of a target: one table, for plans, checks of a cache and the report of a machine.
#pragma once

#include <span>
#include <string_view>

#include "generator/problem.h"

namespace tessera {

/// A target that some operator has kernels for, and the compute capabilities whose devices load its cubin: with suffix
/// a its own, with suffix f its own and the later ones of its family. CUDA programming guide, "Feature availability".
struct TargetRow {
  std::string_view target;
  std::string_view loads_on;
};

std::span<const TargetRow> target_rows() noexcept;

/// "10.0, 10.3"; empty for a target that is not in the table.
std::string_view loads_on(Arch target);

}  // namespace tessera
