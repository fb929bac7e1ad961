// What a multiprocessor takes for the tiles that its CTAs walk over, one after the other, of attention by mma.sync.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera {

/// Of a CTA: steps of all its tiles, and how many tiles.
struct FmhaWalk {
  double steps = 0, tiles = 0;
};

/// CTAs are dealt round all multiprocessors, so one may have two, of which the longer ends alone. `once`: cycles that a
/// tile takes beside its steps. step_cycles(n): of a step of each of n CTAs.
template <class StepCycles>
double cycles_of_walks(std::vector<FmhaWalk> walks, double once, const StepCycles& step_cycles) {
  std::sort(walks.begin(), walks.end(), [](const FmhaWalk& a, const FmhaWalk& b) { return a.steps > b.steps; });
  double cycles = once * walks[0].tiles;
  for (std::size_t i = 0; i < walks.size(); ++i) {
    const double next = i + 1 < walks.size() ? walks[i + 1].steps : 0;
    cycles += (walks[i].steps - next) * step_cycles(static_cast<double>(i + 1));
  }
  return cycles;
}

}  // namespace tessera
