// Where no thread can be started, the one that there is does the work.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "reference/parallel.h"

TEST_CASE("parallel_for does all of its work where a limit leaves no room for a thread's stack") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("skipped: a sanitizer's shadow is terabytes of address space");
#else
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + (2 << 20);
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    std::atomic<int> sum{0};
    tessera::reference::parallel_for(100, 8, [&](std::int64_t i) { sum += static_cast<int>(i); });
    _exit(sum == 4950 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
#endif
}
