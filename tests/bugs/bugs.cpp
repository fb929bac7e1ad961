// Every file of the zoo: the mistake raises exactly its finding under schedule fair and at least its first under the
// others; the mended twin says nothing under any and computes what it should.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tests/bugs/bug_run.h"

namespace tessera::bugs {
namespace {

using emulator::Schedule;

constexpr std::pair<const char*, Schedule> kSchedules[] = {{"fair", Schedule::fair},
                                                           {"eager", Schedule::eager},
                                                           {"lazy", Schedule::lazy},
                                                           {"adversarial", Schedule::adversarial},
                                                           {"split", Schedule::split}};

std::vector<std::string> files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_SOURCE_DIR "/tests/bugs"))
    if (entry.path().extension() == ".bug") found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

bool is_needed(const BugCase& bug, const char* schedule) {
  return bug.schedules.empty() || std::count(bug.schedules.begin(), bug.schedules.end(), schedule) > 0;
}

void check_mended(const BugFile& file, Compiler* compiler) {
  const std::string ptx = ptx_of(file.mended, compiler);
  for (const auto& [name, schedule] : kSchedules) {
    CAPTURE(std::string(name));
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      const Outcome out = run_case(file.mended, ptx, schedule, seed);
      CHECK_MESSAGE(out.text.empty(), file.path, ": the mended twin: ", out.text);
    }
  }
}

void check_faulty(const BugFile& file, Compiler* compiler) {
  const std::string ptx = ptx_of(file.faulty, compiler);
  const Outcome first = run_case(file.faulty, ptx, Schedule::fair, 1);
  if (std::getenv("TESSERA_UPDATE_GOLDEN") != nullptr && first.text != file.finding)
    rewrite_finding(file, first.text);
  else
    CHECK_MESSAGE(first.text == file.finding, file.path, ": found:\n", first.text, "expected:\n", file.finding);
  CHECK_MESSAGE(!first.names.empty(), file.path, ": the mistake was not seen");
  for (const auto& [name, schedule] : kSchedules) {
    if (!is_needed(file.faulty, name)) continue;
    const Outcome out = run_case(file.faulty, ptx, schedule, 1);
    const bool is_seen = std::any_of(out.names.begin(), out.names.end(), [&](const std::string& found) {
      return std::count(first.names.begin(), first.names.end(), found) > 0 ||
             std::count(file.faulty.also.begin(), file.faulty.also.end(), found) > 0;
    });
    CHECK_MESSAGE(is_seen, file.path, ": under ", std::string(name), ": ", out.text);
  }
}

TEST_CASE("the bug zoo") {
  std::unique_ptr<Compiler> compiler;
  try {
    compiler = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("CUDA sources are skipped: no NVRTC");
  }
  const char* only = std::getenv("TESSERA_BUG");
  const std::vector<std::string> paths = files();
  REQUIRE(!paths.empty());
  for (const std::string& path : paths) {
    if (only != nullptr && path.find(only) == std::string::npos) continue;
    const BugFile file = read_bug(path);
    if (file.faulty.language == "cuda" && compiler == nullptr) continue;
    CAPTURE(path);
    try {
      check_mended(file, compiler.get());
      check_faulty(file, compiler.get());
    } catch (const Error& error) {
      std::string text = error.what();
      for (const std::string& note : error.notes()) text += "\n" + note;
      FAIL_CHECK(path << ": " << text);
    }
  }
}

}  // namespace
}  // namespace tessera::bugs
