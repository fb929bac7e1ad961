// Inputs of `run` that come from .npy files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run_operator.h"
#include "reference/tensor.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/plan.h"

namespace tessera::cli {

/// The file's array as the plan's input of that name. Throws Error{usage} where there is none, or the types differ.
reference::Tensor read_array(const Plan& plan, const std::string& name, const std::string& file);

/// Arrays must fit the sizes of the launch, which may come from flags or from other arrays.
void check_shapes(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                  const RunFlags& flags);

}  // namespace tessera::cli
