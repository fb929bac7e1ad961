#include "generator/targets.h"

#include <string>

namespace tessera {

namespace {

constexpr TargetRow kTargets[] = {{"sm_90a", "9.0"},         {"sm_100a", "10.0"}, {"sm_100f", "10.0, 10.3"},
                                  {"sm_103a", "10.3"},       {"sm_103f", "10.3"}, {"sm_120a", "12.0"},
                                  {"sm_120f", "12.0, 12.1"}, {"sm_121a", "12.1"}, {"sm_121f", "12.1"}};

}  // namespace

std::span<const TargetRow> target_rows() noexcept { return kTargets; }

std::string_view loads_on(Arch target) {
  const std::string name = target.to_string();
  for (const TargetRow& row : kTargets)
    if (row.target == name) return row.loads_on;
  return {};
}

}  // namespace tessera
