// The steps of an attention launch: the kernel, and the one that merges where keys are split; and the numbers of tiles
// and ranges that their grids and workspaces follow from.
#pragma once

#include <string>
#include <vector>

#include "generator/attention/fmha_operator.h"
#include "tessera/launch.h"

namespace tessera {

/// Tiles of queries, without the parts of their keys; ragged: at most.
Expression tiles_of(const FmhaLaunch& c);
/// CTAs that the device has places for, or pairs; rows of CTAs where the tiles of a sequence run side by side.
std::string places_of(const FmhaLaunch& c);
/// Most blocks of keys that all tiles may have.
std::string blocks_of(const FmhaLaunch& c);
/// Dealt keys: CTAs, or pairs, that have a range. None has less than a block.
std::string ranges_of(const FmhaLaunch& c);
/// Rows of the workspace that parts take.
std::string part_rows_of(const FmhaLaunch& c);
/// Most keys that the queries of a tile see.
std::string seen_keys(const FmhaLaunch& c);
/// Most parts with a size of their own that a tile may have.
std::string max_parts_of(const FmhaLaunch& c);
/// The sizes that are strides of q or o.
std::vector<std::string> strides_of(const FmhaLaunch& c, const std::string& tensor);
std::vector<std::string> strides_of_o(const FmhaLaunch& c);

/// Appends where the parts of split keys lie in the workspace.
void add_parts(const FmhaLaunch& c, LaunchStep& step);
LaunchStep step_of(const FmhaLaunch& c, const std::string& kernel);
/// With the first step's parameters: what rows see is looked up again.
LaunchStep merge_step_of_dealt(const FmhaLaunch& c, const std::string& entry);
LaunchStep merge_step(const FmhaLaunch& c, const std::string& entry);

}  // namespace tessera
