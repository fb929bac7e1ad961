// Who may include whom, who may print, who may read the environment: held over every source file of the tree.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

using namespace tessera;

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TESSERA_SOURCE_DIR;

/// A folder of ours -> the folders that its files may include. "spec" is templates/spec and templates/tessera/spec.
const std::map<std::string, std::set<std::string>> kAllowed = {
    {"base", {"base", "spec"}},
    {"generator", {"generator", "base", "spec"}},
    {"runtime", {"runtime", "base", "spec"}},
    {"emulator", {"emulator", "base"}},
    {"reference", {"reference", "base", "spec"}},
    {"tessera", {"tessera", "generator", "runtime", "reference", "base", "spec"}},
    {"cli", {"cli", "tessera", "emulator", "reference", "base", "spec"}},
    {"c", {"c", "tessera", "emulator", "base", "spec"}},
    {"guest", {"guest", "emulator", "base"}},
};

/// The header that stands alone, in C.
const std::string kHeaderInC = "c/include/tessera.h";

/// Beside the public headers: what a program that shows problems and caches needs.
const std::set<std::string> kHandedOn = {"generator/facts.h",  "generator/plan_json.h", "generator/selectors.h",
                                         "generator/tuning.h", "generator/words.h",     "runtime/nvrtc.h"};

/// Whose a header is. A public one, "tessera/...", lies in the include/ of its folder.
std::string folder_of(const std::string& include) {
  if (include.starts_with("tessera/spec/")) return "spec";
  for (const auto& [folder, allowed] : kAllowed)
    if (fs::exists(kRoot / folder / "include" / include)) return folder;
  return include.substr(0, include.find('/'));
}

bool is_public(const std::string& include) {
  return include.starts_with("tessera/") && !include.starts_with("tessera/internal/");
}

/// Files of ours in a folder, by path from the root.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  if (!fs::exists(kRoot / folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension().string();
    if (entry.is_regular_file() && std::set<std::string>{".h", ".cpp", ".cu", ".cuh"}.contains(extension))
      files.push_back(fs::relative(entry.path(), kRoot).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The paths of #include "..." and, where asked for, of #include <...>.
std::vector<std::string> includes_of(const std::string& file, bool with_system) {
  std::vector<std::string> includes;
  std::istringstream text(read_text(kRoot / file));
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("#include ")) continue;
    const bool is_system = line[9] == '<';
    const std::size_t end = line.find(is_system ? '>' : '"', 10);
    if (end == std::string::npos || (is_system && !with_system)) continue;
    includes.push_back((is_system ? "<" : "") + line.substr(10, end - 10));
  }
  return includes;
}

}  // namespace

TEST_CASE("folders include only the folders below them") {
  std::size_t seen = 0;
  for (const auto& [folder, allowed] : kAllowed) {
    for (const std::string& file : files_in(folder)) {
      for (const std::string& include : includes_of(file, false)) {
        const std::string top = folder_of(include);
        const bool is_handed_on =
            (folder == "cli" || folder == "c") && (is_public(include) || kHandedOn.contains(include));
        INFO(file << " includes " << include);
        CHECK((allowed.contains(top) || is_handed_on));
        ++seen;
      }
    }
  }
  CHECK(seen > 100);
}

TEST_CASE("public headers include public headers and the standard library") {
  std::size_t seen = 0;
  for (const auto& [folder, allowed] : kAllowed)
    for (const std::string& file : files_in(folder + "/include")) {
      INFO(file);
      if (file == kHeaderInC) {
        CHECK(includes_of(file, true) == std::vector<std::string>{"<stddef.h", "<stdint.h"});
        continue;
      }
      CHECK(file.starts_with(folder + "/include/tessera/"));
      for (const std::string& include : includes_of(file, true)) {
        INFO("includes " << include);
        CHECK((include.starts_with('<') ? include.find_first_of("/.") == std::string::npos : is_public(include)));
      }
      ++seen;
    }
  CHECK(seen >= 30);
}

TEST_CASE("no Config leaves generator/: who uses a plan, or judges a result, includes no header that has one") {
  std::set<std::string> with_config;
  for (const std::string& file : files_in("templates/spec"))
    if (read_text(kRoot / file).find("struct Config {") != std::string::npos)
      with_config.insert(file.substr(std::string("templates/").size()));
  CHECK(with_config.size() >= 20);
  // And what includes one of these.
  for (std::size_t before = 0; before != with_config.size();) {
    before = with_config.size();
    for (const std::string& file : files_in("templates/spec"))
      for (const std::string& include : includes_of(file, false))
        if (with_config.contains(include)) with_config.insert(file.substr(std::string("templates/").size()));
  }
  CHECK(with_config.contains("spec/fmha.h"));
  std::vector<std::string> users;
  for (const char* const folder : {"c", "cli", "tessera", "runtime", "reference"})
    for (const std::string& file : files_in(folder)) users.push_back(file);
  for (const std::string& file : files_in("generator/include")) users.push_back(file);
  for (const std::string& header : kHandedOn) users.push_back(header);
  for (const std::string& file : users)
    for (const std::string& include : includes_of(file, false)) {
      INFO(file << " includes " << include);
      CHECK_FALSE(with_config.contains(include));
      CHECK(include != "generator/candidates.h");
    }
}

TEST_CASE("device code includes nothing outside templates/, system headers neither") {
  for (const std::string& file : files_in("templates")) {
    for (const std::string& include : includes_of(file, true)) {
      INFO(file << " includes " << include);
      const bool is_beside = fs::exists((kRoot / file).parent_path() / include);  // a checked-in default config
      CHECK((fs::exists(kRoot / "templates" / include) || is_beside ||
             include.find("config.cuh") != std::string::npos || include.find("wgmma_shapes.cuh") != std::string::npos));
    }
  }
}

TEST_CASE("nobody needs CUDA's headers, and the generator sees no driver") {
  for (const auto& [folder, allowed] : kAllowed)
    for (const std::string& file : files_in(folder))
      for (const std::string& include : includes_of(file, true)) {
        INFO(file << " includes " << include);
        if (folder == "guest") continue;  // it is what these headers declare
        CHECK(include != "<cuda.h");
        CHECK(include != "<cuda_runtime.h");
        CHECK(include != "<nvrtc.h");
      }
}

// It takes a second of each compile; <nlohmann/json_fwd.hpp> is enough for a header that hands a value on.
TEST_CASE("no header brings json.hpp, but the one that holds values") {
  for (const auto& [folder, allowed] : kAllowed)
    for (const std::string& file : files_in(folder))
      for (const std::string& include : includes_of(file, true)) {
        INFO(file << " includes " << include);
        CHECK((include != "<nlohmann/json.hpp" || file.ends_with(".cpp") || file == "cli/emulate_run.h"));
      }
}

TEST_CASE("the environment is read in one file, and only the command prints") {
  for (const auto& [folder, allowed] : kAllowed) {
    for (const std::string& file : files_in(folder)) {
      std::string text = read_text(kRoot / file);
      INFO(file);
      // What the terminal is, and what a program that is started has preloaded or looks for modules in, says the
      // environment too; no option is read there. guest/ lives in such a program.
      for (const std::string terminal :
           {"getenv(\"TERM\")", "getenv(\"COLUMNS\")", "getenv(\"LD_PRELOAD\")", "getenv(\"PYTHONPATH\")"})
        if (const std::size_t at = text.find(terminal); file == "cli/main.cpp" && at != std::string::npos)
          text.erase(at, terminal.size());
      CHECK(
          (text.find("getenv(") == std::string::npos || file == "tessera/options.cpp" || file == "guest/options.cpp"));
      // A failed assertion is the one message that no caller can carry.
      if (folder == "cli" || file == "base/error.cpp") continue;
      for (const char* printing :
           {"fmt::print(", "std::cout", "std::cerr", "std::puts(", "std::fputs(", "std::printf("})
        CHECK(text.find(printing) == std::string::npos);
    }
  }
}

// The budget is 400 lines; a fifth more is where a file has grown beyond any reason.
TEST_CASE("files stay readable") {
  for (const auto& [folder, allowed] : kAllowed) {
    for (const std::string& file : files_in(folder)) {
      const std::string text = read_text(kRoot / file);
      INFO(file);
      CHECK(std::count(text.begin(), text.end(), '\n') <= 480);
    }
  }
}

TEST_CASE("the README is short, and each of its commands names a script, a subcommand or a program that exists") {
  const std::string text = read_text(kRoot / "README.md");
  CHECK(std::count(text.begin(), text.end(), '\n') <= 170);
  std::istringstream lines(text);
  std::size_t commands = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("$ ")) continue;
    ++commands;
    std::istringstream words(line.substr(2));
    std::string program, argument;
    words >> program >> argument;
    INFO(line);
    if (program.starts_with("scripts/")) CHECK(fs::exists(kRoot / program));
    if (program == "tessera") CHECK(fs::exists(kRoot / "cli" / ("command_" + argument + ".cpp")));
    if (program == ".venv/bin/python") CHECK(fs::exists(kRoot / argument));
    const bool is_of_python =
        program == ".venv/bin/python" || line.find(".venv/bin/pip install '.[") != std::string::npos;
    CHECK((program.starts_with("scripts/") || program == "tessera" || is_of_python));
  }
  CHECK(commands >= 2);
}

TEST_CASE("every file that the tour names exists") {
  const std::string text = read_text(kRoot / "docs/tour.md");
  std::size_t named = 0;
  for (std::size_t at = text.find('`'); at != std::string::npos;) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    const std::string word = text.substr(at + 1, end - at - 1);
    at = text.find('`', end + 1);
    const std::string top = word.substr(0, word.find('/'));
    if (word.find('/') == std::string::npos || word.find(' ') != std::string::npos ||
        word.find('\n') != std::string::npos)
      continue;
    if (!kAllowed.contains(top) && top != "templates" && top != "docs" && top != "tests") continue;
    INFO(word);
    CHECK(fs::exists(kRoot / word));
    ++named;
  }
  CHECK(named > 20);
}
