// What the families of kernels share is defined once: a family that brings its own copy fails here.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

using namespace tessera;

namespace {

namespace fs = std::filesystem;

const fs::path kTemplates = fs::path(TESSERA_SOURCE_DIR) / "templates";

/// The files that define a struct of this name, by path from templates/.
std::vector<std::string> definitions_of(const std::string& name) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(kTemplates)) {
    if (!entry.is_regular_file()) continue;
    const std::string text = read_text(entry.path());
    if (text.find("struct " + name + " {") != std::string::npos ||
        text.find("struct " + name + ";") != std::string::npos)
      files.push_back(fs::relative(entry.path(), kTemplates).string());
  }
  return files;
}

}  // namespace

TEST_CASE("the guard against illegal Configs is defined once, and every kernel begins with it") {
  CHECK(definitions_of("IllegalConfig") == std::vector<std::string>{"common/illegal_config.cuh"});
  std::size_t kernels = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kTemplates)) {
    if (entry.path().filename() != "kernel.cuh") continue;
    INFO(entry.path().string());
    CHECK(read_text(entry.path()).find("common::require_legal<why_invalid(C)>();") != std::string::npos);
    ++kernels;
  }
  CHECK(kernels >= 9);
}

TEST_CASE("an mbarrier's address is counted in one place") {
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kTemplates)) {
    const std::string name = fs::relative(entry.path(), kTemplates).string();
    if (entry.path().extension() != ".cuh" || name.starts_with("common/")) continue;
    ++files;
    std::istringstream text(read_text(entry.path()));
    for (std::string line; std::getline(text, line);) {
      const bool names_barriers =
          line.find("arriers") != std::string::npos || line.find("mbarrier_") != std::string::npos;
      INFO(name, ": ", line);
      CHECK_FALSE((names_barriers && line.find("+ 8 * ") != std::string::npos));
    }
  }
  CHECK(files > 50);
}

TEST_CASE("regions of shared memory, rows of barriers, roles and boxes are defined once") {
  for (const std::string name : {"SmemRegion", "BarrierRow", "Role", "TmaBox"}) {
    INFO(name);
    CHECK(definitions_of(name) == std::vector<std::string>{"spec/kernel_parts.h"});
  }
  // Attention has a ring position in one register.
  std::vector<std::string> rings = definitions_of("RingPosition");
  std::sort(rings.begin(), rings.end());
  CHECK(rings == std::vector<std::string>{"common/ring.cuh", "fmha/ring.cuh"});
}

TEST_CASE("how much shared memory a CTA may have is written once, and the help of `arch` too") {
  const fs::path root = kTemplates.parent_path();
  const auto files_with = [&](const std::string& text) {
    std::vector<std::string> files;
    for (const char* const folder :
         {"base", "c", "cli", "emulator", "generator", "guest", "reference", "runtime", "templates", "tessera"})
      for (const auto& entry : fs::recursive_directory_iterator(root / folder))
        if (entry.is_regular_file() && read_text(entry.path()).find(text) != std::string::npos)
          files.push_back(fs::relative(entry.path(), root).string());
    return files;
  };
  CHECK(files_with("101376") == std::vector<std::string>{"templates/spec/limits.h"});
  for (const std::string derived : {"232448", "115712"}) {
    INFO(derived);
    CHECK(files_with(derived).empty());
  }
  CHECK(files_with("\"target: sm_90a, or ") == std::vector<std::string>{"generator/family.h"});
}
