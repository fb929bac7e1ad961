// PTX text to tokens. PTX ISA, "Lexical Elements".
//
// A word is an identifier, a directive or an opcode with all its modifiers: dots and "::" belong to it, so that
// `cp.async.bulk.tensor.2d.shared::cta.global` and `%tid.x` are one token each; a label's single colon does not.
// Comments vanish. Tokens point into the text, which must outlive them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::emulator {

enum class TokenKind : std::uint8_t { word, integer, real32, real64, string, punctuation, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  std::uint64_t bits = 0;  ///< integer: its value; real32, real64: the bit pattern
  int line = 0;
  int column = 0;
};

/// All tokens, the last one of kind end. Problems are appended to diagnostics; the offending characters are skipped.
std::vector<Token> tokenize(std::string_view text, std::string_view file, std::vector<Diagnostic>& diagnostics);

/// The whole line that holds this position (for diagnostics).
std::string_view line_text(std::string_view text, int line);

}  // namespace tessera::emulator
