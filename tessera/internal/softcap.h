// The one scalar with bounds of its own: scores are divided by it.
#pragma once

#include "tessera/launch.h"

namespace tessera {

/// Index of the scalar; -1 where the kernel caps no scores.
int softcap_index(const LaunchPlan& plan) noexcept;
/// Throws Error{usage}: 0 would make all scores NaN, and a NaN is what nobody has set.
void check_softcap(double cap);

}  // namespace tessera
