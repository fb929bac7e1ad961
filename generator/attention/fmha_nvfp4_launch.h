// The launch of attention of NVFP4 operands, which a planner describes: fmha_nvfp4_launch.cpp.
#pragma once

#include <string>
#include <vector>

#include "spec/fmha_nvfp4.h"
#include "tessera/launch.h"

namespace tessera::fmha_nvfp4 {

inline bool has_ragged_queries(const fmha_nvfp4::Config& c) { return c.facts.q_layout == QueryLayout::ragged; }
inline bool has_ragged_keys(const fmha_nvfp4::Config& c) { return c.facts.kv_layout == KvLayout::ragged; }

/// Numbers that say where the rows of sequences lie.
std::vector<BufferSpec> nvfp4_places_of(const fmha_nvfp4::Config& config);
LaunchPlan fmha_nvfp4_launch(const fmha_nvfp4::Config& config, const std::string& arch, const std::string& kernel,
                             const std::string& merge);

}  // namespace tessera::fmha_nvfp4
