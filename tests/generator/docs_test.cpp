// docs/new-operator.md names files and functions: they exist.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "base/file.h"

using namespace tessera;

TEST_CASE("every path that docs/new-operator.md names exists") {
  const std::filesystem::path root = TESSERA_SOURCE_DIR;
  const std::string text = read_text(root / "docs/new-operator.md");
  int paths = 0;
  for (std::size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    const std::string word = text.substr(at + 1, end - at - 1);
    at = end;
    if (word.find('/') == std::string::npos || word.find_first_of(" {}(*<\n") != std::string::npos) continue;
    CAPTURE(word);
    CHECK(std::filesystem::exists(root / word));
    ++paths;
  }
  CHECK(paths >= 15);
}
