// The tiles of attention that a CTA walks over, one after the other, and what a multiprocessor takes for its CTAs'.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <vector>

namespace tessera {

/// Of a CTA: steps of all its tiles, and how many tiles.
struct FmhaWalk {
  double steps = 0, tiles = 0;
};

/// CTA `cta` of `grid`, where tiles are dealt from the longest to the shortest, every second round backwards (the
/// kernels' schedule.cuh). steps_of(i): of the i-th longest of `count`.
template <class StepsOf>
FmhaWalk walk_of_uneven(double count, double cta, double grid, const StepsOf& steps_of) {
  // Of two rounds every CTA has the same, about.
  const double pairs_of_rounds = std::floor(count / (2 * grid)), dealt = 2 * grid * pairs_of_rounds;
  FmhaWalk walk{2 * pairs_of_rounds * steps_of(dealt / 2), 2 * pairs_of_rounds};
  for (const double tile : {dealt + cta, dealt + 2 * grid - 1 - cta}) {
    if (tile >= count) continue;
    walk.steps += steps_of(tile);
    walk.tiles += 1;
  }
  return walk;
}

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
