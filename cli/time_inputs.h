// What a launch gets whose time alone is asked (--no-values, tune --device emulator).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/run_operator.h"
#include "tessera/internal/launch_sizes.h"

namespace tessera::cli {

/// Values of which nothing depends but results: zeros. Where whole numbers are among the inputs (lengths, pages), or
/// the time depends on values (topk), the real ones, such as models have: the indexer's ranges are causal.
std::map<std::string, reference::Tensor> inputs_for_time(const RunOperator& op, const Plan& plan,
                                                         const LaunchSizes& launch,
                                                         const std::vector<std::int64_t>& sizes, const RunFlags& flags);

}  // namespace tessera::cli
