// Stand-ins for instructions that Hopper lacks: the functions in tests/stand_ins are those that take the place of
// templates/ptx/'s, the pages list each of them, and nothing that a user builds reads the folder.
#include "tests/support/stand_ins.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "base/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const fs::path kSources = TESSERA_SOURCE_DIR, kStandIns = kSources / "tests" / "stand_ins";

/// Device functions that a text defines outside of namespace stand_in.
std::set<std::string> functions_of(std::string text) {
  const std::size_t begin = text.find("namespace stand_in {"), end = text.find("}  // namespace stand_in");
  if (begin != std::string::npos && end != std::string::npos) text.erase(begin, end - begin);
  std::set<std::string> names;
  const std::regex definition("__device__ (?:__forceinline__|__noinline__) \\w+ (\\w+)\\(");
  for (std::sregex_iterator it(text.begin(), text.end(), definition); it != std::sregex_iterator(); ++it)
    names.insert((*it)[1]);
  return names;
}

/// The first cells of a page's tables that are one name in backquotes, under a heading.
std::set<std::string> listed_in(const fs::path& page, const std::string& heading) {
  const std::string text = read_text(page);
  const std::size_t begin = text.find(heading);
  REQUIRE(begin != std::string::npos);
  const std::string part = text.substr(begin, text.find("\n## ", begin + 1) - begin);
  std::set<std::string> names;
  const std::regex cell("\n\\| `(\\w+)` \\|");
  for (std::sregex_iterator it(part.begin(), part.end(), cell); it != std::sregex_iterator(); ++it)
    names.insert((*it)[1]);
  return names;
}

TEST_CASE("stand-ins: those that are used, that there are, and that the pages list are the same") {
  std::set<std::string> used, defined;
  for (const StandIn& one : stand_ins()) used.insert(one.functions.begin(), one.functions.end());
  for (const auto& entry : fs::directory_iterator(kStandIns)) {
    if (entry.path().extension() != ".cuh") continue;
    const std::string original = read_text(kSources / "templates" / "ptx" / entry.path().filename());
    for (const std::string& name : functions_of(read_text(entry.path()))) {
      INFO(entry.path().string(), ": ", name);
      CHECK(original.find(" " + name + "(") != std::string::npos);
      defined.insert(name);
    }
  }
  CHECK(used.size() >= 3);
  CHECK(defined == used);
  CHECK(listed_in(kStandIns / "README.md", "# Stand-ins") == used);
  CHECK(listed_in(kSources / "docs" / "debugging.md", "## Kernels of sm_120 on a Hopper GPU") == used);
}

TEST_CASE("stand-ins: nothing but tests and bench reads the folder") {
  for (const char* const folder :
       {"base", "c", "cli", "cmake", "emulator", "generator", "python", "reference", "runtime", "templates", "tessera"})
    for (const auto& entry : fs::recursive_directory_iterator(kSources / folder)) {
      if (!entry.is_regular_file()) continue;
      INFO(entry.path().string());
      CHECK(read_text(entry.path()).find("tests/stand_ins") == std::string::npos);
    }
}

}  // namespace
}  // namespace tessera
