// A router's lists, which follow from the experts that tokens have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reference/moe_route.h"

namespace tessera::reference {

struct RouteLists {
  std::vector<std::int64_t> groups, counts, indices, slots;
  std::vector<std::uint64_t> row_weights;  ///< bits
};
/// Of topk_experts, which are experts, and topk_weights.
RouteLists route_lists(const MoeRouteRun& run, const std::map<std::string, Tensor>& out);

/// Appends what is wrong with the lists, to the bit, and a likely cause.
void check_route_lists(const MoeRouteRun& run, const std::map<std::string, Tensor>& out,
                       std::vector<std::string>& problems);

}  // namespace tessera::reference
