// Which mistake gives the numbers that were found: mistakes that people make are computed, one after the other, for
// some of the wrong elements, and the one whose results are those found is named. A pattern of places says where to
// look, this says what for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/comparison.h"

namespace tessera::reference {

/// What a kernel with a mistake would store, and how far its roundings may take it from that.
struct Guess {
  double value = 0, slack = 0;
};

struct Suspect {
  std::string cause;  ///< "every block takes the scale of the first of its four"
  std::function<Guess(const Coordinates&)> guess;
  bool gives_nan = false;  ///< says why a result is NaN; of others a NaN says only that they read what does not exist
};

/// "likely cause: CAUSE (gives 31 of 32 wrong elements that were looked at)" of the first suspect that gives nine in
/// ten of them, a third of them far from what is right; empty if none does or there are too few wrong elements to tell.
std::string likely_cause(const std::vector<Mismatch>& mismatches, const std::vector<Suspect>& suspects);

}  // namespace tessera::reference
