// Problems whose tensors reach over more than 2^31 elements, in the emulator: address arithmetic alone. Memory is taken
// for what a launch touches, some clusters of the grid run, and what they wrote is compared tile by tile, each tile of
// the output as a small problem of its own whose operands are cut out of the large ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run_operator.h"
#include "reference/comparison.h"
#include "tessera/emulator/device.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/jit.h"

namespace tessera::cli {

/// Whether some buffer's first and last element are 2^31 elements apart, or more, and it is a product's, of attention
/// or block-scaled.
bool reaches_far(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes);

struct SampledVerdict {
  reference::Comparison comparison;  ///< of all tiles; empty where the launch was stopped
  emulator::ClusterSample clusters;
  std::int64_t tiles = 0;
  std::vector<emulator::EmulatorFinding> findings;
  bool is_stopped = false;
};

/// Inputs are `flags.inputs` of a small problem, again and again. Throws Error{unsupported} for launches of which no
/// part can be looked at alone: with a workspace or several steps, groups, gates, pools of keys, tiles that share rows.
SampledVerdict run_sampled(emulator::EmulatedDevice& device, Kernel& kernel, const RunOperator& op,
                           std::vector<std::int64_t> sizes, const RunFlags& flags, int jobs);

}  // namespace tessera::cli
