// How long attention takes on data-centre Blackwell where all sizes are known: what a Config is scored with. Cycles of
// a block of keys and of a tile's ends are those that the emulator's time model has for one CTA of a B200
// (docs/time.md); nothing was measured.
//
// A CTA's softmax and its products take turns with one Q tile, and run side by side with two: a block of keys takes two
// tiles 1.3 to 1.9 times what it takes one. So two are faster where they fill the device, and one where they do not.
#pragma once

#include "spec/fmha_tcgen05.h"
#include "tessera/problem.h"

namespace tessera::fmha_tcgen05 {

/// Whether the model has something to say: sizes are hints, all of them are there, and keys lie in one pool, as wide
/// as queries.
bool has_fmha_tcgen05_cost(const Fmha& problem);

/// `problem`: with the queries of one sequence. Precondition: has_fmha_tcgen05_cost(problem).
double fmha_tcgen05_cycles(const Config& config, const Fmha& problem);

}  // namespace tessera::fmha_tcgen05
