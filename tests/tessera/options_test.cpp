#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "base/file.h"
#include "tessera/jit.h"

namespace tessera {
namespace {

/// Sets a variable for one scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { old_.empty() ? ::unsetenv(name_) : ::setenv(name_, old_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

std::string refusal(const char* name, const char* value) {
  const Variable variable(name, value);
  try {
    JitOptions::from_environment();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST_CASE("options: the default folder follows XDG_CACHE_HOME, then HOME, and is absent without both") {
  const Variable dir("TESSERA_CACHE_DIR", nullptr);
  const Variable home("HOME", "/home/somebody");
  {
    const Variable xdg("XDG_CACHE_HOME", "/var/cache/somebody");
    CHECK(JitOptions::from_environment().cache_dir == "/var/cache/somebody/tessera");
  }
  {
    const Variable xdg("XDG_CACHE_HOME", "relative/is/ignored");
    CHECK(JitOptions::from_environment().cache_dir == "/home/somebody/.cache/tessera");
  }
  const Variable xdg("XDG_CACHE_HOME", nullptr);
  const Variable no_home("HOME", nullptr);
  CHECK(JitOptions::from_environment().cache_dir.empty());
}

TEST_CASE("options: every variable reaches its option") {
  const Variable dir("TESSERA_CACHE_DIR", "/a");
  const Variable system("TESSERA_SYSTEM_CACHE_DIRS", "/b:/c");
  const Variable max("TESSERA_CACHE_MAX_BYTES", "1000");
  const Variable trust("TESSERA_TRUST_CACHE_DIR", "1");
  const Variable require("TESSERA_REQUIRE_COMPILER", "true");
  const Variable policy("TESSERA_COMPILE_POLICY", "forbid");
  const Variable nvrtc("TESSERA_NVRTC", "/n.so");
  const Variable repro("TESSERA_REPRO_DIR", "/r");
  const Variable templates("TESSERA_TEMPLATES", "/t");
  const Variable extra("TESSERA_NVRTC_OPTIONS", "-a  -b");
  const Variable limit("TESSERA_COMPILE_TIME_LIMIT_MS", "250");
  const Variable pointers("TESSERA_CHECK_POINTERS", "1");
  const JitOptions options = JitOptions::from_environment();
  CHECK(options.cache_dir == "/a");
  CHECK(options.check_pointers);
  CHECK(options.system_cache_dirs == std::vector<std::filesystem::path>{"/b", "/c"});
  CHECK(options.cache_max_bytes == 1000);
  CHECK(options.trust_cache_dir);
  CHECK(options.require_compiler);
  CHECK(options.policy == CompilePolicy::forbid);
  CHECK(options.nvrtc_library == "/n.so");
  CHECK(options.repro_dir == "/r");
  CHECK(options.templates_dir == "/t");
  CHECK(options.nvrtc_options == std::vector<std::string>{"-a", "-b"});
  CHECK(options.compile_time_limit.count() == 250);
}

TEST_CASE("options: values that do not parse are refused by name") {
  CHECK(refusal("TESSERA_CACHE_MAX_BYTES", "8G") == "TESSERA_CACHE_MAX_BYTES = 8G: must be a whole number, 0 or more");
  CHECK(refusal("TESSERA_CACHE_MAX_BYTES", "99999999999999999999") ==
        "TESSERA_CACHE_MAX_BYTES = 99999999999999999999: must be a whole number, 0 or more");
  CHECK(refusal("TESSERA_CACHE_MAX_BYTES", "-1") == "TESSERA_CACHE_MAX_BYTES = -1: must be a whole number, 0 or more");
  CHECK(refusal("TESSERA_TRUST_CACHE_DIR", "yes") == "TESSERA_TRUST_CACHE_DIR = yes: must be 0 or 1");
  CHECK(refusal("TESSERA_COMPILE_POLICY", "never") == "TESSERA_COMPILE_POLICY = never: must be allow, warn or forbid");
}

TEST_CASE("options: the environment is read in one file only") {
  for (const char* folder : {"base", "generator", "runtime", "tessera", "reference"}) {
    for (const auto& item : std::filesystem::directory_iterator(std::filesystem::path(TESSERA_SOURCE_DIR) / folder)) {
      if (item.path().extension() != ".cpp" && item.path().extension() != ".h") continue;
      const bool reads = read_text(item.path()).find("getenv") != std::string::npos;
      CHECK_MESSAGE(reads == (item.path().filename() == "options.cpp"), item.path().string());
    }
  }
}

}  // namespace
}  // namespace tessera
