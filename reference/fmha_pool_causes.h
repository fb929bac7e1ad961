// Which mistake gives the outputs that attention over two pools was found to have: slips that people make with lists,
// pages, scales and heads are computed one after the other, and the first whose outputs are those found is named.
#pragma once

#include <optional>
#include <string>

#include "reference/fmha_pools.h"

namespace tessera::reference {

/// Where the pools' rows come from, if they are tokens of caches (attention_cache.h).
struct FmhaPoolCaches {
  AttentionFacts facts;
  TensorView k, swa_k;  ///< the bytes
  std::int64_t tokens, tokens_of_window;
};

/// "likely cause: CAUSE (explains the 4 wrong queries that were looked at)"; empty if no slip gives what was found.
std::string cause_of_pools(const FmhaPools& inputs, const std::optional<FmhaPoolCaches>& caches,
                           const FmhaOutputs& outputs, const FmhaCheck& check);

}  // namespace tessera::reference
