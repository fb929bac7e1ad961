// How a message quotes what somebody typed, or what a file holds.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// One short line: control characters as '?', at most 60 bytes, "..." for the rest.
std::string shown(std::string_view text);

/// A message of lines for a terminal, whatever text it quotes: control characters as '?', lines and tabs as they are.
std::string printable(std::string text);

}  // namespace tessera
