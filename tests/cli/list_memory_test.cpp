// Long lists under a limit of memory that what they were once held as would exceed several times.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "tests/support/sample.h"
#include "tests/support/temporary_folder.h"

namespace tessera::cli {
namespace {

/// The exit code of `tessera arguments...` as a process that may have so much memory of its own.
int run_within(rlim_t bytes, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TESSERA_COMMAND);
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    const int nothing = open("/dev/null", O_WRONLY);
    if (setrlimit(RLIMIT_DATA, &limit) == 0 && dup2(nothing, STDOUT_FILENO) >= 0) execv(TESSERA_COMMAND, words.data());
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsMemoryOwn = false;  // a sanitizer's would count too
#else
constexpr bool kIsMemoryOwn = true;
#endif
constexpr rlim_t kLimit = rlim_t{96} << 20;

}  // namespace

TEST_CASE("plan prints the plans of a long list as they are made" * doctest::skip(!kIsMemoryOwn)) {
  const testing::TemporaryFolder folder;
  std::string text = "{\"kernels\": [";
  for (int i = 0; i < 5000; ++i) text += fmt::format("{}{{\"op\": \"gemv\", \"m\": {}}}", i == 0 ? "" : ",\n", i + 1);
  write_file(folder / "list.json", text + "]}");
  CHECK(run_within(kLimit, {"plan", (folder / "list.json").string(), "--json"}) == 0);
}

TEST_CASE("a long list takes little more than its text" * doctest::skip(!kIsMemoryOwn)) {
  const testing::TemporaryFolder folder;
  std::string entries = "{\"kernels\": [", sizes = "{\"kernels\": [{\"op\": \"gemv\", \"sizes\": [";
  for (int i = 0; i < 150'000; ++i) {
    const char* const comma = i == 0 ? "" : ",\n";
    entries += fmt::format("{}{{\"op\": \"gemv\", \"m\": {}}}", comma, i + 1);
    sizes += fmt::format("{}{{\"m\": {}}}", comma, i + 1);
  }
  write_file(folder / "entries.json", entries + "]}");
  write_file(folder / "sizes.json", sizes + "]}]}");
  for (const char* const list : {"entries.json", "sizes.json"}) {
    CAPTURE(list);
    const std::vector<std::string> common = {(folder / list).string(), "--cache-dir", (folder / "cache").string(),
                                             "--quiet"};
    std::vector<std::string> check = common, warm = common;
    check.insert(check.begin(), "check");
    warm.insert(warm.begin(), "warm");
    warm.emplace_back("--dry-run");
    const bool of_entries = std::string_view(list) == "entries.json", takes_all = testing::takes_all_cases();
    if (of_entries || takes_all) CHECK(run_within(kLimit, check) == 1);  // nothing is compiled
    if (!of_entries || takes_all) CHECK(run_within(kLimit, warm) == 0);
  }
}

}  // namespace tessera::cli
