// Frequencies of rope as parts of a turn, in fixed point.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/spec/row_chain.h"

namespace tessera {

/// For each pair i of `columns` / 2: base^(-2 i / columns) / (2 pi), stretched as the step says, times 2^64, to 48 bits
/// (so that a last place of pow's that differs from one host to another changes nothing). Stretching:
///   linear   / stretch
///   llama3   wave lengths below trained / high stay, those above trained / low are / stretch, between them both are
///            mixed linearly in trained / wave length
///   yarn     pairs that turn more than `high` times within `trained` stay, those that turn less than `low` times are
///            / stretch, between the pairs where that is both are mixed linearly in i
std::vector<std::uint64_t> rope_turns(const RowStep& step, int columns);

/// What cosine and sine are multiplied with: the step's magnitude, of an inverse 1 over that.
double rope_magnitude(const RowStep& step);

}  // namespace tessera
