// "did you mean ...?": one table of what people call things elsewhere, and the nearest spelling where it has no row.
//
// The table's words are of all kinds: flags, keys of shape lists, element types, targets, operators, commands. A row
// speaks only where what it leads to is among the candidates, so kinds do not get in each other's way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// ", did you mean head_dim?", ", did you mean e4m3 or e5m2?"; nothing when no candidate is near. Case does not count,
/// nor do leading hyphens or - for _.
std::string suggestion(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace tessera
