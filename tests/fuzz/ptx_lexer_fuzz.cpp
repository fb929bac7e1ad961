// libFuzzer: any text becomes tokens that lie in it, in order, with an end token last.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "emulator/syntax/lexer.h"
#include "tests/fuzz/target.h"

TESSERA_FUZZ_TARGET(ptx_lexer)(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::emulator;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<tessera::Diagnostic> diagnostics;
  const std::vector<Token> tokens = tokenize(text, "fuzz.ptx", diagnostics);
  if (tokens.empty() || tokens.back().kind != TokenKind::end) std::abort();
  const char* at = text.data();
  for (const Token& token : tokens) {
    if (token.kind == TokenKind::end) break;
    if (token.text.data() < at || token.text.data() + token.text.size() > text.data() + text.size()) std::abort();
    at = token.text.data() + token.text.size();
    if (token.line < 1 || line_text(text, token.line).size() > size) std::abort();
  }
  return 0;
}
