// What a chain may not be, whatever rows it works on: parsers point at the part, planners refuse with the same words.
#pragma once

#include <optional>
#include <string>

#include "tessera/spec/row_chain.h"

namespace tessera {

struct ChainMistake {
  int step = 0;
  std::string what;
};

/// The first part that does not go with the others, or with what stands in its parentheses.
std::optional<ChainMistake> chain_mistake(const RowChain& chain);

}  // namespace tessera
