// Golden files: tests/golden/generator/NAME holds the whole expected text. TESSERA_UPDATE_GOLDEN=1 in the environment
// writes them anew; the difference is then reviewed with the commit.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace tessera {

/// "line 12:\n- expected\n+ found", or nothing when the texts are equal.
inline std::string first_difference(std::string_view expected, std::string_view found) {
  if (expected == found) return {};
  std::size_t line = 1;
  while (!expected.empty() || !found.empty()) {
    const std::string_view a = expected.substr(0, expected.find('\n'));
    const std::string_view b = found.substr(0, found.find('\n'));
    if (a != b) return "line " + std::to_string(line) + ":\n- " + std::string(a) + "\n+ " + std::string(b);
    expected.remove_prefix(std::min(expected.size(), a.size() + 1));
    found.remove_prefix(std::min(found.size(), b.size() + 1));
    ++line;
  }
  return "one text ends without a newline";
}

inline void check_golden(const std::string& name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/generator" / name;
  const char* const update = std::getenv("TESSERA_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    std::filesystem::create_directories(path.parent_path());
    write_file(path, text);
    return;
  }
  INFO("golden file " << path.string() << ": TESSERA_UPDATE_GOLDEN=1 writes it anew");
  REQUIRE(std::filesystem::exists(path));
  CHECK(first_difference(read_text(path), text) == "");
}

}  // namespace tessera
