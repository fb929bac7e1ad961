// Single files through nvcc, by the command in their first line: nothing but what that line says.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;

namespace {

struct Outcome {
  int status = -1;
  std::string text;
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
  outcome.status = pclose(pipe);
  return outcome;
}

/// A PATH on which nvcc is found, or the test is skipped.
std::string path_with_nvcc() {
  const std::string path = "PATH=\"$PATH:/usr/local/cuda/bin\"";
  if (shell(path + " nvcc --version").status != 0) {
    fmt::print(stderr, "skipped: no nvcc on this machine\n");
    std::exit(77);
  }
  return path;
}

}  // namespace

TEST_CASE("nvcc: the first line of a single file compiles it without a word") {
  const std::string path = path_with_nvcc();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("tessera_nvcc_test_{}", getpid());
  std::filesystem::create_directories(folder);
  for (const Problem& problem : {problem_of("copy2d"), problem_of("fmha", {{"mask", "causal"}}),
                                 problem_of("fmha", {{"head_dim", "256"}, {"output", "unnormalized"}})}) {
    const Plan plan = make_plan(problem);
    const std::string text = emit_single_file(plan);
    write_file(folder / (plan.kernel + ".cu"), text);
    REQUIRE(text.starts_with("// "));
    const std::string command = text.substr(3, text.find('\n') - 3);
    const Outcome outcome = shell(fmt::format("cd '{}' && {} {} -Werror all-warnings", folder.string(), path, command));
    CHECK(outcome.text == "");
    CHECK(outcome.status == 0);
    CHECK(std::filesystem::file_size(folder / (plan.kernel + ".cubin")) > 1000);
  }
  std::filesystem::remove_all(folder);
}
