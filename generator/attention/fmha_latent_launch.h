// The grid of attention whose keys are values too, as text of expressions: the tiles of a sequence are CTAs side by
// side, and each such row of CTAs has a range of what all sequences have.
#pragma once

#include <fmt/format.h>

#include <string>

#include "generator/attention/fmha_operator.h"

namespace tessera {

inline std::string tiles_of_sequence(const FmhaLaunch& c) {
  return fmt::format("ceil_div(seqlen_q * {}, {})", c.pack_gqa, c.tile_rows);
}

/// Rows of CTAs that the device has places for, but never none.
inline std::string latent_places(const FmhaLaunch& c) {
  return fmt::format("ceil_div(max(num_sms - {0} + 1, 1), {0})", fmt::format("max({}, 1)", tiles_of_sequence(c)));
}

/// What ranges are cut of: most pairs of key blocks where keys are dealt, else sequences.
inline std::string latent_units(const FmhaLaunch& c) {
  return c.is_dealt ? fmt::format("batch * max(ceil_div(seqlen_k, {}), 1)", c.tile_n) : "batch";
}

}  // namespace tessera
