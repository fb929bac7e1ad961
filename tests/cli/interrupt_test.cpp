// The command as a process of its own, interrupted at random moments: each interrupt ends it within a second with
// 128 + the signal's number, and `warm` says what it did. TESSERA_TEST_INTERRUPTS asks for a longer run.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
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

/// Waits until the process has a handler of the signal, or is over: under load it may be long in coming so far.
void wait_for_handler(pid_t process, int signal) {
  const std::string status = fmt::format("/proc/{}/status", process);
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    const std::string text = read_text(status);
    const std::size_t caught = text.find("SigCgt:");
    if (caught == std::string::npos || text.find("State:\tZ") != std::string::npos) return;
    if ((std::strtoull(text.c_str() + caught + 7, nullptr, 16) >> (signal - 1) & 1U) != 0) return;
  }
}

/// Runs `tessera arguments...`, sends the signal so long after the process has a handler of it, and waits for the end.
/// The child does not ignore the signals that a script's `&` lets this process ignore, unless it is to.
Interrupted interrupt(const fs::path& folder, std::vector<std::string> arguments, std::chrono::milliseconds after,
                      int signal, bool is_ignored = false) {
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
  struct sigaction mine {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGINT);
  sigaddset(&both, SIGTERM);
  posix_spawnattr_setsigdefault(&attributes, &both);
  if (!is_ignored) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  if (is_ignored) sigaction(signal, &ignore, &mine);
  const int spawned = posix_spawn(&child, TESSERA_COMMAND, &files, &attributes, words.data(), environ);
  if (is_ignored) sigaction(signal, &mine, nullptr);
  posix_spawnattr_destroy(&attributes);
  REQUIRE(spawned == 0);
  posix_spawn_file_actions_destroy(&files);
  if (!is_ignored) wait_for_handler(child, signal);
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

/// What `cache verify --json` says of the folder, every payload read; fails where it ends with another code than 0.
nlohmann::json verify(const fs::path& folder, const fs::path& cache) {
  const std::string out = (folder / "verified").string();
  const std::string line =
      fmt::format("'{}' cache verify --json --cache-dir '{}' > '{}'", TESSERA_COMMAND, cache.string(), out);
  CHECK(std::system(line.c_str()) == 0);
  return nlohmann::json::parse(read_text(out));
}

int entries_of(const fs::path& folder) {
  std::error_code none;
  return static_cast<int>(std::distance(fs::directory_iterator(folder, none), fs::directory_iterator()));
}

/// What a long run is recorded with.
struct Counts {
  int interrupts = 0, by_sigint = 0, slow = 0, unreported = 0, left_staged = 0;
  double longest = 0;

  void add(const Interrupted& ended, int signal) {
    ++interrupts;
    by_sigint += signal == SIGINT ? 1 : 0;
    slow += ended.seconds > 0.4 ? 1 : 0;
    longest = std::max(longest, ended.seconds);
  }
  std::string text() const {
    return fmt::format(
        "{} interrupts, {} by SIGINT: the longest took {:.2f} s to end, {} more than 0.4 s; {} kernels stored beside "
        "those reported, {} staging folders left",
        interrupts, by_sigint, longest, slow, unreported, left_staged);
  }
};

int interrupts() {
  const char* const asked = std::getenv("TESSERA_TEST_INTERRUPTS");
  return asked == nullptr ? 10 : std::atoi(asked);
}

}  // namespace

TEST_CASE("an interrupted warm ends within a second with its report, and leaves a cache that is whole") {
  if (!find_nvrtc()) {
    MESSAGE("not run: no NVRTC here");
    return;
  }
  std::mt19937 random(41);
  const std::vector<std::string> problems = {"warm",   "fmha",        "--head-dim", "64,96,128,192,256",
                                             "--mask", "none,causal", "--jobs",     "2"};
  Counts counts;
  for (int i = 0; i < interrupts(); ++i) {
    const testing::TemporaryFolder folder;
    const fs::path cache = folder / "cache", temporary = folder / "tmp";
    fs::create_directory(temporary);
    setenv("TMPDIR", temporary.c_str(), 1);  // what a compiler leaves lying about is seen
    const bool is_json = random() % 2 == 0;
    const int signal = random() % 2 == 0 ? SIGINT : SIGTERM;
    std::vector<std::string> arguments = problems;
    for (const std::string& word : {std::string("--cache-dir"), cache.string()}) arguments.push_back(word);
    if (is_json) arguments.emplace_back("--json");
    const Interrupted ended = interrupt(folder.path, arguments, std::chrono::milliseconds(60 + random() % 900), signal);
    unsetenv("TMPDIR");
    CAPTURE(ended.out);
    CAPTURE(ended.err);
    CHECK(ended.code == 128 + signal);
    CHECK(ended.seconds < 1.0);
    counts.add(ended, signal);
    CHECK(fs::is_empty(temporary));
    const auto verified = verify(folder.path, cache);
    CHECK(verified["damaged"].empty());
    counts.left_staged += entries_of(cache / "v1" / "staging");
    if (!is_json) {
      CHECK(ended.out.find("interrupted, run it again to go on") != std::string::npos);
      continue;
    }
    const auto report = nlohmann::json::parse(ended.out, nullptr, false);
    REQUIRE_FALSE(report.is_discarded());
    CHECK(report["cancelled"] == true);
    CHECK(report["compiled"] == report["entries"].size());
    // What it says it compiled is in the cache; one that was stored at the very end may be there too.
    for (const auto& entry : report["entries"]) CHECK(entry["stored"] == true);
    CHECK(verified["checked"].get<int>() >= report["compiled"].get<int>());
    counts.unreported += verified["checked"].get<int>() - report["compiled"].get<int>();
  }
  MESSAGE(counts.text());
}

TEST_CASE("every other command ends within a second, too") {
  const testing::TemporaryFolder folder;
  const std::string many =
      "--tile-m 64,128,192,256 --stages 2,3,4,5,6 --m 1,2,3,4,5,6,7,8,9,10 --n 64,128,192,256,320,384,448,512";
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
      const Interrupted ended = interrupt(folder.path, arguments, std::chrono::milliseconds(25), signal);
      CAPTURE(ended.err);
      CHECK(ended.code == 128 + signal);
      CHECK(ended.seconds < 1.0);
      CHECK(ended.err.ends_with("tessera: interrupted\n"));
    }
  }
}

TEST_CASE("interrupts: a signal that the caller ignores is ignored") {
  const testing::TemporaryFolder folder;
  for (const int signal : {SIGINT, SIGTERM}) {
    const Interrupted ended =
        interrupt(folder.path, {"plan", "gemm", "--m", "100,1000,10000", "--n", "320,3200", "--k", "512,5120"},
                  std::chrono::milliseconds(20), signal, true);
    CHECK(ended.code == 0);
  }
}

}  // namespace tessera::cli
