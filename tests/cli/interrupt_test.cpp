// The command as a process of its own, interrupted at random moments: each interrupt ends it within a second with
// 128 + the signal's number, and `warm` says what it did. TESSERA_TEST_INTERRUPTS asks for a longer run.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tests/support/temporary_folder.h"

extern char** environ;

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Interrupted {
  int code = -1;
  double seconds = 0;  ///< from the signal to the end
  std::string out, err;
};

/// Runs `tessera arguments...`, sends the signal after so long, and waits for the end.
Interrupted interrupt(const fs::path& folder, std::vector<std::string> arguments, std::chrono::milliseconds after,
                      int signal) {
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  arguments.insert(arguments.begin(), TESSERA_COMMAND);
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, TESSERA_COMMAND, &files, nullptr, words.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&files);
  std::this_thread::sleep_for(after);
  const Clock::time_point sent = Clock::now();
  kill(child, signal);
  int status = 0;
  waitpid(child, &status, 0);
  Interrupted result;
  result.seconds = std::chrono::duration<double>(Clock::now() - sent).count();
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result.out = read_text(out);
  result.err = read_text(err);
  return result;
}

int interrupts() {
  const char* const asked = std::getenv("TESSERA_TEST_INTERRUPTS");
  return asked == nullptr ? 10 : std::atoi(asked);
}

}  // namespace

TEST_CASE("an interrupted warm ends within a second with its report") {
  if (!find_nvrtc()) {
    MESSAGE("not run: no NVRTC here");
    return;
  }
  std::mt19937 random(41);
  const std::vector<std::string> problems = {"warm",   "fmha",        "--head-dim", "64,96,128,192,256",
                                             "--mask", "none,causal", "--cache-dir"};
  for (int i = 0; i < interrupts(); ++i) {
    const testing::TemporaryFolder folder;
    const bool is_json = random() % 2 == 0;
    const int signal = random() % 2 == 0 ? SIGINT : SIGTERM;
    std::vector<std::string> arguments = problems;
    for (const std::string& word : {(folder / "cache").string(), std::string("--jobs"), std::string("2")})
      arguments.push_back(word);
    if (is_json) arguments.emplace_back("--json");
    const Interrupted ended = interrupt(folder.path, arguments, std::chrono::milliseconds(60 + random() % 900), signal);
    CAPTURE(ended.out);
    CAPTURE(ended.err);
    CHECK(ended.code == 128 + signal);
    CHECK(ended.seconds < 1.0);
    if (!is_json) {
      CHECK(ended.out.find("interrupted, run it again to go on") != std::string::npos);
      continue;
    }
    const auto report = nlohmann::json::parse(ended.out, nullptr, false);
    REQUIRE_FALSE(report.is_discarded());
    CHECK(report["cancelled"] == true);
    CHECK(report["compiled"] == report["entries"].size());
    // What it says it compiled is in the cache.
    for (const auto& entry : report["entries"]) CHECK(entry["stored"] == true);
  }
}

TEST_CASE("every other command ends within a second, too") {
  const testing::TemporaryFolder folder;
  const std::string many = "--tile-m 64,128,192,256 --stages 2,3,4,5,6 --m 1,2,3,4,5,6,7,8,9,10 --n 64,128,192,256";
  std::vector<std::string> product = {"gemm"};
  for (std::size_t start = 0; start < many.size();) {
    const std::size_t end = std::min(many.find(' ', start), many.size());
    product.push_back(many.substr(start, end - start));
    start = end + 1;
  }
  for (const char* const command : {"plan", "check"}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      std::vector<std::string> arguments = product;
      arguments.insert(arguments.begin(), command);
      for (const std::string& word : {std::string("--k"), std::string("64,128,192,256,320,384,448,512"),
                                      std::string("--cache-dir"), (folder / "cache").string()})
        arguments.push_back(word);
      const Interrupted ended = interrupt(folder.path, arguments, std::chrono::milliseconds(100), signal);
      CAPTURE(ended.err);
      CHECK(ended.code == 128 + signal);
      CHECK(ended.seconds < 1.0);
      CHECK(ended.err.ends_with("tessera: interrupted\n"));
    }
  }
}

}  // namespace tessera::cli
