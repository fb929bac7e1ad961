// A launch file for a plan: its launch as it stands, sizes that a CPU runs in a moment, random inputs.
#pragma once

#include <vector>

#include "base/launch_json.h"
#include "tessera/internal/launch_sizes.h"

namespace tessera::cli {

/// plan: what `tessera plan --json` prints, or its `launch` alone. Throws Error{usage} when it is neither, and when the
/// sizes lie outside the launch's domain (given ones override the small ones that are chosen here).
OrderedJson make_launch_file(const OrderedJson& plan, const std::vector<GivenSize>& given);

}  // namespace tessera::cli
