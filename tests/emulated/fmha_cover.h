// What a kernel of attention on tcgen05 can be, as values of axes; combinations that cover every pair of values; and
// for a combination and a seed a ragged shape that is hard for it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/fmha.h"
#include "tessera/problem.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::testing {

enum FmhaAxis : std::uint8_t {
  kAxisHeadDims,
  kAxisMask,
  kAxisSwizzle,
  kAxisPath,  ///< of P
  kAxisType,
  kAxisOutput,
  kAxisVLayout,
  kAxisWindow,
  kAxisUsed,   ///< valid lengths in memory
  kAxisHeads,  ///< for a key head, packed into a tile's rows or not
  kAxisSplit,
  kAxisPools,
  kAxisSink,
  kAxisQueries,  ///< of a sequence: as many places for each, or ragged
  kAxisKeys,     ///< as wide as queries; of 8 bits, or all of 8 bits, in drawn kernels alone
  kAxisShape,    ///< few queries and many keys, several tiles, more queries than keys
  kNumFmhaAxes
};
/// Index of the value of each axis. All zeros: head_dim 16, no mask, no features, one head.
using FmhaCombination = std::array<int, kNumFmhaAxes>;
/// How many values each axis has.
FmhaCombination fmha_extents();

/// A combination that a kernel is made for; its shape is no part of the question.
bool is_legal(const FmhaCombination& at);
/// All over head_dims, mask, swizzle, way of P and type: what every kernel has. Other values are 0.
std::vector<FmhaCombination> fmha_core();
/// Every two values of two axes that stand together in a legal combination stand together in one of these.
std::vector<FmhaCombination> fmha_cover();
/// `core` with other values drawn on the axes that fmha_core() leaves at 0; legal.
FmhaCombination with_drawn_facts(const FmhaCombination& core, std::uint64_t seed);

struct FmhaCase {
  Fmha problem;
  reference::FmhaSizes sizes;
  FmhaLaunchFacts facts;
};
/// Ragged lengths; but for more queries than keys and short lists the rings of one CTA wrap twice where num_sms is 1.
/// Even seeds have a softmax_scale of 1, under which scores differ by dozens: references move in every few steps.
FmhaCase draw_case(const FmhaCombination& at, std::uint64_t seed);

}  // namespace tessera::testing
