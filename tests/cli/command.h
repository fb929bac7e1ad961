// Runs the command in this process: streams are temporary files, the compiler counts, there is no GPU unless given.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/host.h"
#include "tests/support/counting_compiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera::cli {

struct Outcome {
  int code = 0;
  std::string out, err;
};

class Terminal {
 public:
  Terminal() {
    host.options.cache_dir = folder.path / "cache";
    host.prepare_jit = [this](Jit& jit) { jit.set_compiler(compiler); };
    host.open_gpu = [](std::string& reason) {
      reason = "a test without a GPU";
      return nullptr;
    };
  }

  Outcome run(const std::vector<std::string>& arguments) {
    std::FILE* out = std::tmpfile();
    std::FILE* err = std::tmpfile();
    REQUIRE(out != nullptr);
    REQUIRE(err != nullptr);
    host.out = out;
    host.err = err;
    Outcome outcome;
    outcome.code = run_tessera(arguments, host);
    outcome.out = slurp(out);
    outcome.err = slurp(err);
    if (refuses_hazards && !arguments.empty() && arguments.front() == "run") {
      INFO(outcome.out);
      CHECK(outcome.out.find("hazard: ") == std::string::npos);
      CHECK(outcome.out.find("\"is_failure\": false") == std::string::npos);
    }
    return outcome;
  }

  std::string write(const std::string& name, std::string_view text) const {
    write_file(folder.path / name, text);
    return (folder.path / name).string();
  }

  tessera::testing::TemporaryFolder folder;
  std::shared_ptr<testing::CountingCompiler> compiler = std::make_shared<testing::CountingCompiler>();
  Host host;
  bool refuses_hazards = false;  ///< `run` finds none, with exit code 0 or not

 private:
  static std::string slurp(std::FILE* file) {
    std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
  }
};

/// Compares with tests/golden/cli/NAME; TESSERA_UPDATE_GOLDEN=1 writes it anew.
inline void check_golden(const std::string& name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/cli" / name;
  const char* const update = std::getenv("TESSERA_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    std::filesystem::create_directories(path.parent_path());
    write_file(path, text);
    return;
  }
  INFO("golden file " << path.string() << ": TESSERA_UPDATE_GOLDEN=1 writes it anew");
  REQUIRE(std::filesystem::exists(path));
  CHECK(read_text(path) == text);
}

}  // namespace tessera::cli
