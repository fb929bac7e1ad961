// How long a product takes with a Config: a model of an SM's rates that knows the arch and the sizes, no device.
//
// A tile costs its steps along K and a fixed part for what nothing overlaps: its stores, panel by panel or as fast as
// all SMs together write, and where K is split the sums of the parts. A step takes about as long as the slowest of four
// things: the tensor cores; one SM's copies; what enters the SMs; what the L2 looks up, where CTAs that want the same
// line in the same step are answered together. Rows that do not begin on lines of 128 bytes cost more of the last
// three, rows in a box that reaches behind the matrix cost the more the more SMs have them. Tiles are dealt out in
// rounds over the SMs, of which clusters of four leave some idle; a launch takes at least what memory needs for its
// bytes.
//
// The constants were fitted to times on an H200, and to the choice that follows from them: 61,576 times on
// 1,147 products of 1 to 8,000 rows and k from 16 (bf16 in four layouts, e4m3 fast and promoted); what they give is in
// bench/results/planner.md. They are rates of the architecture, so the model orders candidates for its other devices
// too. It counts the 132 SMs that most devices of the architecture have: what runs is right on any number.
#pragma once

#include "spec/gemm.h"
#include "tessera/problem.h"

namespace tessera::gemm {

struct GemmCost {
  double cycles = 0;        ///< of an SM, all in all
  double tensor_share = 0;  ///< of the time that the tensor cores are busy with work that was asked for
  long long rounds = 0;     ///< of tiles
  bool is_memory_bound = false;
};

/// Unknown sizes count as 4,096, an unknown l as 1.
GemmCost gemm_cost(const gemm::Config& config, const Gemm& problem);

/// What gemm_cost().cycles is not below, for a legal Config, in a fraction of the time.
double least_gemm_cycles(const gemm::Config& config, const Gemm& problem);

/// Cycles as microseconds at the clock that the model's rates are for.
double gemm_cost_us(const GemmCost& cost);

}  // namespace tessera::gemm

namespace tessera {

using gemm::gemm_cost;
using gemm::GemmCost;

}  // namespace tessera
