// Each __syncwarp of the templates, left out one at a time.
#pragma once

#include <string>

#include "tessera/compiler.h"

namespace tessera::mutations {

/// A section of docs/mutations.md. takes_all: every kernel, else a small one. Fails the running test for a place that
/// nothing sees and that has no reason to be unseen, and, where all are taken, for a place that no kernel executes.
std::string warp_syncs_page(Compiler& compiler, bool takes_all);

}  // namespace tessera::mutations
