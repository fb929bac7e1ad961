// What the planners of attention on Hopper and by mma.sync, whose Configs are the same, choose alike: packed heads,
// split keys, and a Config from a Problem's facts and pins and a tile.
#pragma once

#include "spec/fmha_tiles.h"
#include "tessera/problem.h"

namespace tessera {

inline constexpr Hint kFewQueriesOfFmha = 64;  ///< a warpgroup's rows: with fewer, most of them would be idle

/// Whether prefills and single queries may stand side by side: ragged queries, in the mean so few that most keys must
/// be of earlier steps.
bool fmha_may_be_step(const Fmha& p);

/// Heads that are packed where the caller does not say: all of a key head's, if queries are known to be few.
int fmha_packed_heads(const Fmha& p);

/// With the queries of one sequence.
Fmha fmha_of_one_sequence(const Fmha& p);

/// Split where few tiles would leave a device idle beside long walks over the keys, or a long walk of one sequence
/// beside short ones of others.
/// `config`: but for that.
SplitKv fmha_split(const Fmha& p, const fmha::Config& config);

fmha::HeadDims fmha_head_dims(const Fmha& problem);

/// Pins replace what the tile says.
fmha::Config fmha_config(const Fmha& problem, const fmha::Tile& tile, Swizzle swizzle, MmaKind kind);

}  // namespace tessera
