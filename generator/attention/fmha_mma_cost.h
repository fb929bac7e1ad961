// How long attention by mma.sync takes, by a model: what a Config is scored with. Rates are published ones
// (generator/model_device.h), so the model orders candidates and promises nothing.
//
// A step of tile_n keys takes about as long as the slowest of what it overlaps: the tensor cores, the exponentials,
// other instructions, shared memory, which is written once and read by every warp, and what the L2 delivers to one
// multiprocessor; or, where a scheduler has one warp, as products and softmax one after the other. A tile takes its
// steps, its Q and its stores. Tiles are dealt out as the kernel deals them, and the multiprocessor counts that ends
// last: its CTAs, one or two, and the longer one's rest alone. A launch takes at least what memory needs. Behind split
// keys comes the merge, whose warps go through a row's parts.
#pragma once

#include "generator/mma_costs.h"
#include "generator/model_device.h"
#include "spec/fmha.h"
#include "tessera/problem.h"

namespace tessera {

struct FmhaMmaCost {
  double cycles = 0;
  double us = 0;
  double tensor_share = 0;  ///< of the rate that the tensor cores have for these operands
  UnitWork work;
};

/// Sizes that no hint tells count as 4,096 queries and keys of 32 heads.
FmhaMmaCost fmha_mma_cost(const fmha::Config& config, const Fmha& problem, const MmaDevice& device);

}  // namespace tessera
