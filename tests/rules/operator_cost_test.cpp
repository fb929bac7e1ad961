// What an operator costs: docs/new-operator.md lists copy2d's files, and no other file of the tree knows copy2d.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TESSERA_SOURCE_DIR;

/// Files of the table of parts; those that are there before the operator stand in bold.
struct Parts {
  std::set<std::string> added, existing;
};

Parts parts_of_page() {
  Parts parts;
  std::istringstream page(read_text(kRoot / "docs/new-operator.md"));
  bool is_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| part |")) is_table = true;
    if (is_table && line.empty()) break;
    for (std::size_t at = line.find('`'); is_table && at != std::string::npos; at = line.find('`', at)) {
      const std::size_t end = line.find('`', at + 1);
      REQUIRE(end != std::string::npos);
      const std::string word = line.substr(at + 1, end - at - 1);
      const bool is_bold = at > 0 && line[at - 1] == '*';
      if (word.find('/') != std::string::npos) (is_bold ? parts.existing : parts.added).insert(word);
      at = end + 1;
    }
  }
  return parts;
}

/// Whether code names the operator: in an identifier, an include, or a string that is its name and nothing else. What
/// comments and help say of it does not count.
bool names_it(std::string line) {
  if (const std::size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
  if (line.find("\"copy2d\"") != std::string::npos) return true;
  std::string code;
  bool is_text = false;
  const bool is_include = line.starts_with("#include");
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) is_text = !is_text;
    if (!is_text || is_include) code += line[i];
  }
  return code.find("opy2d") != std::string::npos;
}

}  // namespace

TEST_CASE("an operator costs at most 12 files, 3 of them existing: those that the page lists") {
  const Parts parts = parts_of_page();
  CHECK(parts.added.size() + parts.existing.size() <= 12);
  CHECK(parts.existing.size() <= 3);
  CHECK(parts.existing.size() > 0);
  for (const auto& list : {parts.added, parts.existing})
    for (const std::string& file : list) {
      INFO(file);
      CHECK(fs::is_regular_file(kRoot / file));
    }
  std::set<std::string> found;
  for (const char* const folder :
       {"base", "cli", "emulator", "generator", "reference", "runtime", "templates", "tessera"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string path = fs::relative(entry.path(), kRoot).string();
      std::istringstream text(read_text(entry.path()));
      bool is_named = path.find("opy2d") != std::string::npos;
      for (std::string line; std::getline(text, line) && !is_named;) is_named = names_it(line);
      if (is_named) found.insert(path);
    }
  found.erase("base/suggestion.cpp");  // what people type who mean it
  std::set<std::string> listed;
  for (const auto& list : {parts.added, parts.existing})
    for (const std::string& file : list)
      if (!file.starts_with("docs/") && !file.starts_with("tests/")) listed.insert(file);
  CHECK(found == listed);
}

TEST_CASE("the toy's operator is in its folder alone") {
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests/toy")) files += entry.is_regular_file();
  CHECK(files <= 12);
  for (const char* const folder :
       {"base", "cli", "emulator", "generator", "reference", "runtime", "templates", "tessera"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (!entry.is_regular_file()) continue;
      INFO(entry.path());
      CHECK(read_text(entry.path()).find("toy_scale") == std::string::npos);
    }
}

}  // namespace tessera
