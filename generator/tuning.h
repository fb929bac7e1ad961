// What `tessera tune` measures: the planner's legal candidates, each as a Problem that pins it.
#pragma once

#include <vector>

#include "tessera/problem.h"

namespace tessera {

/// The Problem with pins that name one legal candidate, for each: the planner's choice first, then by its scores. Pins
/// that were given stay, so a Problem that pins all has one candidate. Throws like make_plan.
std::vector<Problem> pinned_candidates(const Problem& problem);

}  // namespace tessera
