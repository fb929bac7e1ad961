// How long attention takes with a Config, where batch, heads and lengths are known: a model of an SM's rates that knows
// the arch and the sizes, no device.
//
// Four parts, each by rates and latencies of an SM:
//   a block of keys   the smooth maximum of what the tensor cores, the issue of softmax and the loads need for all
//                     warpgroups of the SM, and of one warpgroup's own chain of product, softmax and product
//   a CTA             its tiles' blocks, as the kernel deals them (templates/fmha/schedule.cuh), and for each tile its
//                     statistics, its masked blocks and its O. With two slots for Q tiles are joined, and one step more
//                     closes the last; with one they are separate, and each waits for its Q (consumer.cuh). For few
//                     blocks that step is what decides: a larger tile whose shared memory leaves room for one slot wins
//   an SM             its CTA, or two that work side by side; the busiest counts
//   the launch        beside that SM, what comes from memory: once, and again where many heads' K and V are in use at a
//                     time
// The constants were fitted to 4,600 times on an H200: 379 problems (seven head_dims, both masks, 1 to 16,384 queries
// and keys), every tile of a head_dim on each. How far the choice is from the best: docs/performance.md. The model
// counts the 132 SMs that most devices of the architecture have: what runs is right on any number.
#pragma once

#include "spec/fmha.h"
#include "tessera/problem.h"

namespace tessera::fmha {

/// Whether the problem says enough: batch, heads and lengths.
bool has_fmha_cost(const Fmha& problem);

/// Cycles of an SM, all in all. Precondition: has_fmha_cost(problem).
double fmha_cost(const fmha::Config& config, const Fmha& problem);

/// No more than fmha_cost(), for a fraction of its time: nothing is dealt, and nothing waits. Same precondition.
double least_fmha_cost(const fmha::Config& config, const Fmha& problem);

/// Cycles as microseconds at the clock that the model's rates are for.
double fmha_cost_us(double cycles);

}  // namespace tessera::fmha

namespace tessera {

using fmha::fmha_cost;
using fmha::fmha_cost_us;
using fmha::has_fmha_cost;
using fmha::least_fmha_cost;

}  // namespace tessera
