// Which headers a source needs, by reading its #include lines: the bundle of a kernel holds exactly those.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/source_bundle.h"

namespace tessera {

/// The names of `#include "name"` lines, in order. Conditional compilation is not looked at: templates include nothing
/// under a condition.
std::vector<std::string> included_names(std::string_view text);

/// Every header that `text` includes, directly or through others, in the order in which a compiler first finishes them:
/// each stands after all that it includes. Names are looked up in `sources`, earlier ones first, then among the
/// embedded templates. Throws Error{compile} for a name that nothing has and for a cycle.
std::vector<SourceFile> transitive_headers(std::string_view program, std::string_view text,
                                           const std::vector<SourceFile>& sources);

}  // namespace tessera
