// What `tessera cache` and `tessera doctor` do with a store that machines share.
#pragma once

#include "base/launch_json.h"
#include "cli/call.h"
#include "tessera/cache_admin.h"

namespace tessera::cli {

/// The store and whether it answers: asks it for an entry that nobody has. Null: there is none.
OrderedJson remote_report(Call& call);
/// "http://...: answers, read only"
std::string remote_line(const OrderedJson& report);

/// Stores what the folders have and matches.
ExitCode push_cache_entries(Call& call, const CacheFilter& filter);
/// Loads the kernels of a shape list into the user folder.
ExitCode pull_cache_entries(Call& call, const std::string& list);

}  // namespace tessera::cli
