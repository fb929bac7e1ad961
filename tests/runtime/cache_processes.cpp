// Several processes over one folder, and processes that die in the middle.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include "runtime/cache_folder.h"
#include "tests/runtime/cache_fixture.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;
using std::chrono::steady_clock;

namespace {

/// Runs the function in a child; what it returns is the exit code.
pid_t fork_child(const std::function<int()>& run) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  int code = 99;
  try {
    code = run();
  } catch (...) {
  }
  ::_exit(code);
}

int wait_for(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

bool has_exited_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

/// Appends the number to a file that all processes share.
void log_compile(const fs::path& log, int number) {
  const int descriptor = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const char byte = static_cast<char>('a' + number);
  if (descriptor < 0 || ::write(descriptor, &byte, 1) != 1) ::_exit(98);
  ::close(descriptor);
}

#ifdef TESSERA_EMULATED_HOST
constexpr std::chrono::seconds kPatience{30};  // qemu on a loaded machine took 5.2
#else
constexpr std::chrono::seconds kPatience{5};
#endif

/// Whatever a writer left: entries load right or not at all, nothing blocks, nothing is damaged.
void check_unharmed(Bench& bench, int keys) {
  const auto before = steady_clock::now();
  const auto cache = bench.open();
  for (int i = 0; i < keys; ++i) {
    const auto found = cache->find(request_for(sample_bundle(i), &bench.compiler));
    if (found) CHECK(is_right(*found, i, bench.compiler));
    CHECK(is_right(*bench.build(*cache, i), i, bench.compiler));
    CHECK(bench.find(i) != nullptr);
  }
  CHECK(steady_clock::now() - before < kPatience);
  CHECK(cache->stats().quarantined == 0);
  CHECK(bench.warnings.empty());
}

}  // namespace

TEST_CASE("cache processes: 16 that want the same 8 kernels compile each once") {
  Bench bench;
  const fs::path log = bench.folder / "compiles";
  int gate[2];
  REQUIRE(::pipe(gate) == 0);
  std::vector<pid_t> children;
  for (unsigned process = 0; process < 16; ++process) {
    children.push_back(fork_child([&] {
      ::close(gate[1]);
      char byte = 0;
      if (::read(gate[0], &byte, 1) != 0) return 1;  // ends when the parent closes its side
      std::vector<int> order(8);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(process));
      const auto cache = bench.open();
      bench.compiler.delay = std::chrono::milliseconds{20};
      for (const int number : order) {
        const SourceBundle bundle = sample_bundle(number);
        const auto entry = cache->find_or_build(request_for(bundle, &bench.compiler), [&] {
          log_compile(log, number);
          return bench.compiler.compile(bundle);
        });
        if (!is_right(*entry, number, bench.compiler)) return 2;
      }
      return bench.warnings.empty() ? 0 : 3;
    }));
  }
  ::close(gate[0]);
  ::close(gate[1]);
  for (const pid_t child : children) CHECK(has_exited_well(wait_for(child)));
  std::string compiled = read_text(log);
  std::sort(compiled.begin(), compiled.end());
  CHECK(compiled == "abcdefgh");
  CHECK(bench.staged() == 0);
}

TEST_CASE("cache processes: a writer killed at each of its operations leaves nothing wrong") {
  // Situations: a first publication; one with eviction; a damaged entry that it heals.
  testing::Stride victims(6);
  for (int situation = 0; situation < 3; ++situation) {
    int victim = victims.first();
    for (bool is_done = false; !is_done; victim += victims.step()) {
      CAPTURE(situation);
      CAPTURE(victim);
      Bench bench;
      if (situation == 1) {
        bench.build(1);
        bench.build(2);
        bench.options.max_bytes = 20'000;
      }
      if (situation == 2) {
        bench.build(0);
        fs::resize_file(bench.entry_folder(0) / kCubinFile, 3);
      }
      const int status = wait_for(fork_child([&] {
        int count = 0;
        auto hooks = std::make_shared<FileHooks>();
        hooks->before = [&](FileOperation, std::string_view) {
          if (count++ == victim) ::raise(SIGKILL);
          return 0;
        };
        bench.options.hooks = hooks;
        return bench.build(0) ? 0 : 1;
      }));
      is_done = has_exited_well(status);
      CHECK((is_done || was_killed(status)));
      bench.options.max_bytes = 0;
      if (situation == 2) {
        // The damage may still be there: then it is found now.
        const auto cache = bench.open();
        CHECK(is_right(*bench.build(*cache, 0), 0, bench.compiler));
        bench.warnings.clear();
      }
      check_unharmed(bench, 3);
      CHECK(bench.staged() <= 1);
    }
    CHECK(victim > 30);
  }
}

TEST_CASE("cache processes: a writer killed at random moments leaves nothing wrong and blocks nobody") {
  Bench bench;
  bench.compiler.cubin_bytes = 100'000;
  bench.compiler.ptx_bytes = 200'000;
  const std::int64_t four_entries = 4 * 302'000;
  std::mt19937 random(11);
  int killed = 0;
  const int rounds = testing::takes_all_cases() ? 200 : 30;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = fork_child([&] {
      bench.options.max_bytes = four_entries;  // so that it evicts as well
      for (int i = 0;; i = (i + 1) % 8) bench.build(i);
      return 0;
    });
    ::usleep(static_cast<unsigned>(500 + random() % 15'000));
    ::kill(child, SIGKILL);
    killed += was_killed(wait_for(child)) ? 1 : 0;
    const auto cache = bench.open();
    const int number = static_cast<int>(random() % 8);
    const auto found = cache->find(request_for(sample_bundle(number), &bench.compiler));
    if (found) CHECK(is_right(*found, number, bench.compiler));
  }
  CHECK(killed == rounds);
  bench.options.max_bytes = 0;
  check_unharmed(bench, 8);
}

TEST_CASE("cache processes: the lock of a dead process is free, that of a live one is waited for so long") {
  Bench bench;
  bench.build(0);  // makes the folders
  const CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t holder = fork_child([&] {
    CacheShared shared(bench.options);
    const CacheFolder folder(shared, bench.options.user_folder, true);
    const ProcessLock lock = folder.lock("build " + request.keys.entry);
    if (lock.outcome() != LockOutcome::held || ::write(ready[1], "x", 1) != 1) return 1;
    ::pause();
    return 0;
  });
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);

  bench.options.lock_wait = std::chrono::milliseconds{60};
  const auto impatient = bench.open();
  auto before = steady_clock::now();
  CHECK(bench.build(*impatient, 1)->tier == CacheTier::compiled);
  CHECK(steady_clock::now() - before >= std::chrono::milliseconds{60});
  CHECK(impatient->stats().lock_waits == 1);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find("another process has held the lock of tessera_sample_1") != std::string::npos);
  bench.build(*impatient, 2);  // another key is not blocked
  CHECK(impatient->stats().lock_waits == 1);

  ::kill(holder, SIGKILL);
  CHECK(was_killed(wait_for(holder)));
  bench.options.lock_wait = std::chrono::seconds{60};
  before = steady_clock::now();
  fs::remove_all(bench.entry_folder(1));
  CHECK(bench.build(1)->tier == CacheTier::compiled);
  CHECK(steady_clock::now() - before < std::chrono::seconds{5});
}

TEST_CASE("cache processes: a wait for a living one says so and ends at a stop request") {
  Bench bench;
  bench.build(0);  // makes the folders
  CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  CacheShared shared(bench.options);
  const CacheFolder folder(shared, bench.options.user_folder, true);
  const ProcessLock holder = folder.lock("build " + request.keys.entry);
  REQUIRE(holder.outcome() == LockOutcome::held);

  int long_waits = 0;
  const ProcessLock patient = folder.lock("build " + request.keys.entry, {.longest = std::chrono::milliseconds{100},
                                                                          .on_long = [&] { ++long_waits; },
                                                                          .long_after = std::chrono::milliseconds{30}});
  CHECK(patient.outcome() == LockOutcome::timed_out);
  CHECK(long_waits == 1);

  // A listener that throws costs no descriptor.
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto open_before = open_files();
  CHECK_THROWS_AS(folder.lock("build " + request.keys.entry, {.longest = std::chrono::seconds{5},
                                                              .on_long = [] { throw std::runtime_error("listener"); },
                                                              .long_after = std::chrono::milliseconds{5}}),
                  std::runtime_error);
  CHECK(open_files() == open_before);

  bench.options.lock_wait = std::chrono::seconds{60};
  const auto cache = bench.open();
  std::stop_source source;
  request.stop = source.get_token();
  const std::jthread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    source.request_stop();
  });
  const auto before = steady_clock::now();
  try {
    cache->find_or_build(request, []() -> Image { throw std::logic_error("must not build"); });
    FAIL("was built");
  } catch (const WaitInterrupted& error) {
    CHECK(error.what() == std::string("tessera_sample_1: interrupted while another process compiled it"));
  }
  CHECK(steady_clock::now() - before < std::chrono::seconds{5});
}

TEST_CASE("cache processes: who joined a wait that another's stop request ends waits on") {
  Bench bench;
  bench.build(0);  // makes the folders
  const CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  CacheShared shared(bench.options);
  const CacheFolder folder(shared, bench.options.user_folder, true);
  ProcessLock holder = folder.lock("build " + request.keys.entry);
  REQUIRE(holder.outcome() == LockOutcome::held);

  bench.options.lock_wait = std::chrono::seconds{60};
  const auto cache = bench.open();
  std::stop_source source;
  bool was_interrupted = false;
  std::jthread leader([&] {
    CacheRequest stoppable = request;
    stoppable.stop = source.get_token();
    try {
      cache->find_or_build(stoppable, []() -> Image { throw std::logic_error("must not build"); });
    } catch (const WaitInterrupted&) {
      was_interrupted = true;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  // A joiner's own stop ends its wait at once, not the leader's.
  CacheRequest joiner = request;
  std::stop_source own;
  joiner.stop = own.get_token();
  own.request_stop();
  CHECK_THROWS_AS(cache->find_or_build(joiner, []() -> Image { throw std::logic_error("must not build"); }),
                  WaitInterrupted);
  std::jthread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    source.request_stop();
    leader.join();
    holder.release();
  });
  int builds = 0;
  const auto entry = cache->find_or_build(request, [&] {
    ++builds;
    return bench.compiler.compile(sample_bundle(1));
  });
  interrupt.join();
  CHECK(was_interrupted);
  CHECK(builds == 1);
  CHECK(entry->tier == CacheTier::compiled);
}

TEST_CASE("cache processes: who waits for the lock takes what the holder has published") {
  Bench bench;
  const auto cache = bench.open();
  pid_t child = 0;
  const SourceBundle bundle = sample_bundle(1);
  const CacheRequest request = request_for(bundle, &bench.compiler);
  cache->find_or_build(request, [&] {
    child = fork_child([&] {
      const auto other = bench.open();
      const auto entry = other->find_or_build(request, []() -> Image { ::_exit(7); });
      return entry->tier == CacheTier::user && other->stats().lock_waits == 1 ? 0 : 1;
    });
    ::usleep(50'000);
    return bench.compiler.compile(bundle);
  });
  CHECK(has_exited_well(wait_for(child)));
}

TEST_CASE("cache processes: a child forked during a compile does not keep the lock") {
  Bench bench;
  bench.options.lock_wait = std::chrono::seconds{2};
  const SourceBundle bundle = sample_bundle(1);
  const CacheRequest request = request_for(bundle, &bench.compiler);
  pid_t child = 0;
  bench.open()->find_or_build(request, [&] {
    child = fork_child([] { return ::pause(); });
    return bench.compiler.compile(bundle);
  });
  fs::remove_all(bench.entry_folder(1));
  const auto cache = bench.open();
  bench.build(*cache, 1);
  CHECK(cache->stats().lock_waits == 0);
  ::kill(child, SIGKILL);
  wait_for(child);
}

TEST_CASE("cache processes: eviction while others load harms nobody") {
  Bench bench;
  bench.compiler.cubin_bytes = 100'000;
  bench.options.max_bytes = 3 * 112'000;
  std::vector<pid_t> children;
  const int rounds = testing::takes_all_cases() ? 60 : 20;
  for (unsigned process = 0; process < 4; ++process) {
    children.push_back(fork_child([&] {
      std::mt19937 random(process);
      for (int round = 0; round < rounds; ++round) {
        const int number = static_cast<int>(random() % 6);
        const auto cache = bench.open();
        if (!is_right(*bench.build(*cache, number), number, bench.compiler)) return 1;
        if (cache->stats().quarantined != 0) return 2;
      }
      return bench.warnings.empty() ? 0 : 3;
    }));
  }
  for (const pid_t child : children) {
    const int status = wait_for(child);
    CHECK_MESSAGE(has_exited_well(status), status);
  }
  CHECK(bench.staged() == 0);
}
