// How long attention takes with a Config, where batch, heads and lengths are known: a model of an SM's rates that knows
// the arch and the sizes, no device.
//
// A block of keys takes as long as the slowest of its products, its exponentials, its loads and one warpgroup's own
// chain of product and softmax; a tile as many blocks as it sees, and what nothing overlaps: its first loads and its
// last stores. Tiles are dealt over the SMs, so few of them, or a last round that is partly filled, cost what they
// take. The constants were fitted to 3,800 times on an H200: 252 problems (seven head_dims, both masks, 1 to 8,500
// queries and keys), every tile of a head_dim on each. Over these the choice takes 1.7 % longer than the best tile in
// the geometric mean. The model counts the 132 SMs that most devices of the architecture have: what runs is right on
// any number.
#pragma once

#include "generator/problem.h"
#include "spec/fmha.h"

namespace tessera {

/// Whether the problem says enough: batch, heads and lengths.
bool has_fmha_cost(const Fmha& problem);

/// Cycles of an SM, all in all. Precondition: has_fmha_cost(problem).
double fmha_cost(const fmha::Config& config, const Fmha& problem);

/// Cycles as microseconds at the clock that the model's rates are for.
double fmha_cost_us(double cycles);

}  // namespace tessera
