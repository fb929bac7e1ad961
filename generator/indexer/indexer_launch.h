// The launch of an indexer's scores as data: see spec/indexer.h.
#pragma once

#include <string>

#include "spec/indexer.h"
#include "tessera/launch.h"

namespace tessera::indexer {

LaunchPlan indexer_launch(const indexer::Config& config, const std::string& arch, const std::string& kernel);

}  // namespace tessera::indexer
