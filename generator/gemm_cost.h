// How long a product takes with a Config: a model of an SM's rates that knows the arch and the sizes, no device.
//
// A tile costs its steps along K, each as long as the slower of the tensor cores and what brings the operands, and a
// fixed part for what nothing overlaps: its stores, panel by panel. Operands are brought by copies, which cost
// something each and by the row, more where rows do not begin on lines of 128 bytes, and most for rows behind the
// matrix's edge, which are filled with zeros. Tiles are dealt out in rounds over the SMs, of which clusters of four
// leave some idle; a launch takes at least what memory needs for its bytes. The constants were fitted to 35,000 times
// on an H200: up to 65 Configs on 198 products of 1 to 5,000 rows (bf16 in two layouts, e4m3 fast and promoted), loaded
// in boxes of 16 and 32 rows and in whole tiles. Over these the choice takes 2.2 % longer than the best candidate in
// the geometric mean, over 70 other products, in boxes of 16 and 32 rows, 2.3 %. They are rates of the architecture, so
// the model orders candidates for its other devices too. It counts the 132 SMs that most devices of the architecture
// have: what runs is right on any number.
#pragma once

#include "generator/problem.h"
#include "spec/gemm.h"

namespace tessera {

struct GemmCost {
  double cycles = 0;        ///< of an SM, all in all
  double tensor_share = 0;  ///< of the time that the tensor cores are busy with work that was asked for
  long long rounds = 0;     ///< of tiles
  bool is_memory_bound = false;
};

/// Unknown sizes count as 4,096, an unknown l as 1.
GemmCost gemm_cost(const gemm::Config& config, const Gemm& problem);

/// Cycles as microseconds at the clock that the model's rates are for.
double gemm_cost_us(const GemmCost& cost);

}  // namespace tessera
