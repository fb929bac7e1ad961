// Which devices load the code of a target: one table, for plans, checks of a cache and the report of a machine.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "generator/problem.h"

namespace tessera {

/// A target that some operator has kernels for, and the compute capabilities whose devices load its cubin: with suffix
/// a its own, with suffix f its own and the later ones of its family. CUDA programming guide, "Feature availability".
struct TargetRow {
  std::string_view target;
  std::string_view loads_on;
  int smem_bytes = 0;  ///< most shared memory of a CTA
};

std::span<const TargetRow> target_rows() noexcept;

/// Null for a target that is not in the table.
const TargetRow* target_row(Arch target) noexcept;
/// "10.0, 10.3"; empty for a target that is not in the table.
std::string_view loads_on(Arch target);
/// Targets whose code devices of a compute capability ("10.3") load; none: no kernel runs there.
std::vector<std::string_view> targets_for(std::string_view capability);
/// Other targets whose code loads wherever the target's does: sm_100f and sm_103f for sm_103a.
std::vector<std::string_view> targets_instead_of(Arch target);

}  // namespace tessera
