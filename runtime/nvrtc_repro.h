// What a failing compile leaves behind: its sources in a folder and one command that replays it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/source_bundle.h"

namespace tessera {

/// A new folder in `parent` (empty: the temporary folder) named after the kernel, readable by the owner only:
/// src/ with every source, log.txt, and run.sh, which compiles them again with nvcc ($NVCC, or the first on the path).
/// Returns its path. Throws Error{io}.
std::filesystem::path write_repro(const std::filesystem::path& parent, const SourceBundle& bundle,
                                  const std::vector<std::string>& options, const std::string& log);

/// The nvcc options that mean the same; what only NVRTC knows is left out.
std::vector<std::string> nvcc_options(const std::vector<std::string>& nvrtc_options);

}  // namespace tessera
