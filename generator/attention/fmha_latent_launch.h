// The grid of attention whose keys are values too, as text of expressions: the tiles of a sequence are CTAs side by
// side, and each such row of CTAs has a range of what all sequences have.
#pragma once

#include <fmt/format.h>

#include <string>

#include "generator/attention/fmha_operator.h"
#include "spec/attention_facts.h"

namespace tessera {

/// With pools a query has keys of its own, and is what a sequence is to the kernel.
inline std::string rows_of_sequence(const FmhaLaunch& c) {
  const bool is_query = c.walks_sequences && has_pools(c.facts);
  return is_query ? fmt::format("{}", c.pack_gqa) : fmt::format("seqlen_q * {}", c.pack_gqa);
}
inline std::string tiles_of_sequence(const FmhaLaunch& c) {
  return fmt::format("ceil_div({}, {})", rows_of_sequence(c), c.tile_rows);
}

/// Rows of CTAs that the device has places for, but never none.
inline std::string latent_places(const FmhaLaunch& c) {
  return fmt::format("ceil_div(max(num_sms - {0} + 1, 1), {0})", fmt::format("max({}, 1)", tiles_of_sequence(c)));
}

/// What ranges are cut of: most pairs of key blocks where keys are dealt, else sequences.
inline std::string latent_units(const FmhaLaunch& c) {
  if (has_pools(c.facts))
    return c.is_dealt ? fmt::format("batch * seqlen_q * max(ceil_div(topk + seqlen_swa, {}), 1)", c.tile_n)
                      : "batch * seqlen_q";
  return c.is_dealt ? fmt::format("batch * max(ceil_div(seqlen_k, {}), 1)", c.tile_n) : "batch";
}

}  // namespace tessera
