// What callers were compiled against: exported names, sizes and places of members, values of constants, beside the
// checked-in list tests/golden/c/abi.txt. A change of what stands there needs a new TESSERA_ABI_VERSION; a line that is
// added at the end of a struct, or for a new function, does not.
#include <fmt/format.h>

#include <cstdio>
#include <regex>
#include <set>
#include <sstream>

#include "tests/c/handles.h"
#include "tests/generator/golden.h"

namespace {

std::set<std::string> exported_names(std::string& version) {
  std::set<std::string> names;
  FILE* const pipe = popen("nm -D --defined-only " TESSERA_C_LIBRARY " 2>/dev/null", "r");
  REQUIRE(pipe != nullptr);
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream words(line);
    std::string address, type, name;
    words >> address >> type >> name;
    const std::string plain = name.substr(0, name.find('@'));
    if (type == "A")
      version = plain;
    else
      names.insert(plain);
  }
  pclose(pipe);
  return names;
}

std::set<std::string> declared_names() {
  const std::string header = tessera::read_text(TESSERA_SOURCE_DIR "/c/include/tessera.h");
  std::set<std::string> names;
  const std::regex function("(?:^|\n)[a-z][a-z0-9_ *]*[ *](tessera_[a-z_]+)\\(");
  for (std::sregex_iterator it(header.begin(), header.end(), function); it != std::sregex_iterator(); ++it)
    names.insert((*it)[1]);
  return names;
}

#define TESSERA_MEMBER(type, member) fmt::format("  {} at {}\n", #member, offsetof(type, member))

std::string structs() {
  std::string text = fmt::format("tessera_event {}\n", sizeof(tessera_event));
  text += TESSERA_MEMBER(tessera_event, struct_size) + TESSERA_MEMBER(tessera_event, kind) +
          TESSERA_MEMBER(tessera_event, kernel) + TESSERA_MEMBER(tessera_event, tier) +
          TESSERA_MEMBER(tessera_event, message) + TESSERA_MEMBER(tessera_event, milliseconds);
  text += fmt::format("tessera_jit_options {}\n", sizeof(tessera_jit_options));
  text += TESSERA_MEMBER(tessera_jit_options, struct_size) + TESSERA_MEMBER(tessera_jit_options, cache_dir) +
          TESSERA_MEMBER(tessera_jit_options, system_cache_dirs) +
          TESSERA_MEMBER(tessera_jit_options, cache_max_bytes) + TESSERA_MEMBER(tessera_jit_options, nvrtc) +
          TESSERA_MEMBER(tessera_jit_options, repro_dir) + TESSERA_MEMBER(tessera_jit_options, templates) +
          TESSERA_MEMBER(tessera_jit_options, nvrtc_options) + TESSERA_MEMBER(tessera_jit_options, num_nvrtc_options) +
          TESSERA_MEMBER(tessera_jit_options, compile_time_limit_ms) +
          TESSERA_MEMBER(tessera_jit_options, compile_policy) + TESSERA_MEMBER(tessera_jit_options, no_disk_cache) +
          TESSERA_MEMBER(tessera_jit_options, trust_cache_dir) + TESSERA_MEMBER(tessera_jit_options, require_compiler) +
          TESSERA_MEMBER(tessera_jit_options, check_pointers) +
          TESSERA_MEMBER(tessera_jit_options, ignore_environment) + TESSERA_MEMBER(tessera_jit_options, on_event) +
          TESSERA_MEMBER(tessera_jit_options, user_data);
  text += fmt::format("tessera_field {}\n", sizeof(tessera_field));
  text += TESSERA_MEMBER(tessera_field, name) + TESSERA_MEMBER(tessera_field, value);
  text += fmt::format("tessera_progress {}\n", sizeof(tessera_progress));
  text += TESSERA_MEMBER(tessera_progress, struct_size) + TESSERA_MEMBER(tessera_progress, done) +
          TESSERA_MEMBER(tessera_progress, total) + TESSERA_MEMBER(tessera_progress, seconds) +
          TESSERA_MEMBER(tessera_progress, seconds_left) + TESSERA_MEMBER(tessera_progress, kernel);
  text += fmt::format("tessera_warm_options {}\n", sizeof(tessera_warm_options));
  text += TESSERA_MEMBER(tessera_warm_options, struct_size) + TESSERA_MEMBER(tessera_warm_options, jobs) +
          TESSERA_MEMBER(tessera_warm_options, dry_run) + TESSERA_MEMBER(tessera_warm_options, on_progress) +
          TESSERA_MEMBER(tessera_warm_options, user_data);
  text += fmt::format("tessera_stats {}\n", sizeof(tessera_stats));
  text += TESSERA_MEMBER(tessera_stats, struct_size) + TESSERA_MEMBER(tessera_stats, kernel_hits) +
          TESSERA_MEMBER(tessera_stats, memory_hits) + TESSERA_MEMBER(tessera_stats, user_hits) +
          TESSERA_MEMBER(tessera_stats, system_hits) + TESSERA_MEMBER(tessera_stats, compiles) +
          TESSERA_MEMBER(tessera_stats, failures) + TESSERA_MEMBER(tessera_stats, compile_ms) +
          TESSERA_MEMBER(tessera_stats, quarantined) + TESSERA_MEMBER(tessera_stats, published) +
          TESSERA_MEMBER(tessera_stats, publish_failures) + TESSERA_MEMBER(tessera_stats, evicted) +
          TESSERA_MEMBER(tessera_stats, lock_waits) + TESSERA_MEMBER(tessera_stats, remote_hits) +
          TESSERA_MEMBER(tessera_stats, remote_misses) + TESSERA_MEMBER(tessera_stats, remote_stored) +
          TESSERA_MEMBER(tessera_stats, remote_errors) + TESSERA_MEMBER(tessera_stats, remote_failures) +
          TESSERA_MEMBER(tessera_stats, remote_ms);
  text += fmt::format("tessera_arguments {}\n", sizeof(tessera_arguments));
  text += TESSERA_MEMBER(tessera_arguments, struct_size) + TESSERA_MEMBER(tessera_arguments, sizes) +
          TESSERA_MEMBER(tessera_arguments, num_sizes) + TESSERA_MEMBER(tessera_arguments, scalars) +
          TESSERA_MEMBER(tessera_arguments, num_scalars) + TESSERA_MEMBER(tessera_arguments, buffers) +
          TESSERA_MEMBER(tessera_arguments, num_buffers) + TESSERA_MEMBER(tessera_arguments, workspace) +
          TESSERA_MEMBER(tessera_arguments, workspace_bytes);
  text += fmt::format("tessera_device_options {}\n", sizeof(tessera_device_options));
  text += TESSERA_MEMBER(tessera_device_options, struct_size) + TESSERA_MEMBER(tessera_device_options, kind) +
          TESSERA_MEMBER(tessera_device_options, ordinal) + TESSERA_MEMBER(tessera_device_options, arch) +
          TESSERA_MEMBER(tessera_device_options, seed) + TESSERA_MEMBER(tessera_device_options, schedule) +
          TESSERA_MEMBER(tessera_device_options, max_seconds) + TESSERA_MEMBER(tessera_device_options, num_sms) +
          TESSERA_MEMBER(tessera_device_options, detects_races) +
          TESSERA_MEMBER(tessera_device_options, is_interrupted) + TESSERA_MEMBER(tessera_device_options, user_data);
  return text;
}

#undef TESSERA_MEMBER

/// Every enumerator of the header with its value, which stands there.
std::string constants() {
  const std::string header = tessera::read_text(TESSERA_SOURCE_DIR "/c/include/tessera.h");
  std::string text;
  const std::regex constant("\n  (TESSERA_[A-Z_]+) = ([0-9]+)");
  for (std::sregex_iterator it(header.begin(), header.end(), constant); it != std::sregex_iterator(); ++it)
    text += fmt::format("{} {}\n", (*it)[1].str(), (*it)[2].str());
  return text;
}

}  // namespace

TEST_CASE("c: the library exports what the header declares, and nothing else") {
  std::string version;
  const std::set<std::string> exported = exported_names(version);
  REQUIRE(!exported.empty());
  CHECK(exported == declared_names());
  CHECK(version == fmt::format("TESSERA_{}", TESSERA_ABI_VERSION));
}

TEST_CASE("c: names, places and values are those that callers were compiled against") {
  std::string text = fmt::format("ABI {}\n", tessera_abi_version());
  for (const std::string& name : declared_names()) text += name + "\n";
  tessera::check_golden("../c/abi.txt", text + structs() + constants());
}
