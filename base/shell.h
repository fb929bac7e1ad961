// Text as words of a POSIX shell.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// 'it'\''s': any text as one word, in quotes.
std::string shell_quoted(std::string_view text);
/// The same, in quotes only where a shell would take the text apart or make another of it.
std::string shell_word(std::string_view text);

}  // namespace tessera
