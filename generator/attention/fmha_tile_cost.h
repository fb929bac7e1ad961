// What the planners of attention guess where no model of the time and no measurement speaks, the same on every target:
// what the shape of a tile costs, how many heads are packed, and when there are tiles enough without split keys.
//
// Work per score is 1. A step of tile_n keys adds a fixed cost to each of its rows, a tile of tile_m rows shares the
// loads of K and V, and a ring of one slot can't load ahead. The constants are estimates that only order candidates.
#pragma once

#include <algorithm>

#include "tessera/problem.h"
#include "tessera/spec/types.h"

namespace tessera {

inline constexpr double kStepCost = 8;        // in keys: barriers, what becomes of O
inline constexpr double kLoadCost = 16;       // in queries: K and V of a step
inline constexpr double kOneStageCost = 0.2;  // share of the work: loads that nothing overlaps
inline constexpr double kNarrowCost = 0.05;   // share of the work, for each halving of the swizzle span: bank conflicts
inline constexpr double kBelowDefault = 0.99;  // whatever the guess says, the default stays

/// `beside`: what a target's own choices add, as a share of the work.
template <class Config>
double tile_cost(const Config& c, double beside = 0) {
  double cost = 1 + kStepCost / c.tile_n + kLoadCost / c.tile_m;
  if (c.stages == 1) cost += kOneStageCost;
  cost += beside;
  for (int span = swizzle_span_bytes(c.swizzle); span < 128; span *= 2) cost += kNarrowCost;
  return cost;
}

/// A tile's share of the default's speed, from the costs of both.
inline double share_of_default(double cost, double of_default) {
  return std::min(kBelowDefault, kBelowDefault * of_default / cost);
}

/// All heads of a key head, where it is known that there are at most `most_queries` of them: more fill the rows of a
/// tile by themselves. Else 1.
inline Hint packable_heads(const Fmha& p, Hint most_queries) {
  if (p.heads_q <= 0 || p.heads_kv <= 0 || p.heads_q % p.heads_kv != 0) return 1;
  return p.seqlen_q < 0 || p.seqlen_q > most_queries ? 1 : p.heads_q / p.heads_kv;
}

/// Whether batch and heads alone make so many tiles. Hints may be huge.
inline bool has_tiles(const Fmha& p, int pack_gqa, Hint enough) {
  const auto few = [&](Hint count) { return std::clamp<Hint>(count, 0, enough); };
  return few(p.batch) * few(p.heads_q / pack_gqa) >= enough;
}

}  // namespace tessera
