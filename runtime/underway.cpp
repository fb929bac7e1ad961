#include "runtime/underway.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "tessera/error.h"

namespace tessera {

namespace {

constexpr std::int64_t kMillion = 1'000'000;

// A process in the upper half, a number of it in the lower one: a child after fork() has the number of its parent, and
// none of its threads.
constexpr std::uint64_t pack(std::uint32_t process, std::uint32_t number) {
  return std::uint64_t{process} << 32U | number;
}

std::atomic<std::uint64_t> g_threads{0};  // in a scope
std::atomic<std::uint64_t> g_leaver{0};   // the thread that called exit()
std::atomic<std::int64_t> g_longest_ms{kLongestWaitAtExit.count()};
std::atomic<std::int64_t> g_deadline_ns{0};
thread_local int t_depth = 0;

std::uint32_t process() { return static_cast<std::uint32_t>(::getpid()); }

std::uint32_t of_process(const std::atomic<std::uint64_t>& packed) {
  const std::uint64_t value = packed.load();
  return value >> 32U == process() ? static_cast<std::uint32_t>(value) : 0;
}

std::uint32_t this_thread() { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }

void add(std::uint32_t number) {
  std::uint64_t before = g_threads.load();
  while (true) {
    const bool is_mine = before >> 32U == process();
    const std::uint32_t count = is_mine ? static_cast<std::uint32_t>(before) : 0;
    if (g_threads.compare_exchange_weak(before, pack(process(), count + number))) return;
  }
}

std::int64_t ticks_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 * kMillion + now.tv_nsec;
}

// Nothing here may take a lock: the process may end at any moment of any thread.
void wait_for_threads() {
  if (of_process(g_leaver) == 0) {
    g_deadline_ns = ticks_ns() + g_longest_ms.load() * kMillion;
    g_leaver = pack(process(), this_thread());  // from here on no scope of another thread begins
  }
  const std::uint32_t own = t_depth > 0 ? 1 : 0;
  while (of_process(g_threads) > own && ticks_ns() < g_deadline_ns.load()) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 2 * kMillion};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

void wait_at_exit() noexcept { static_cast<void>(std::atexit(wait_for_threads)); }

void set_longest_wait_at_exit(std::chrono::milliseconds longest) noexcept { g_longest_ms = longest.count(); }

Underway::Underway() {
  static const bool is_registered = (wait_at_exit(), true);
  static_cast<void>(is_registered);
  if (t_depth++ > 0) return;
  add(1);
  const std::uint32_t leaver = of_process(g_leaver);
  if (leaver == 0 || leaver == this_thread()) return;
  --t_depth;
  add(std::uint32_t{0} - 1);
  throw Error(ErrorKind::compile, "the process is ending: nothing is compiled any more");
}

Underway::~Underway() {
  if (--t_depth == 0) add(std::uint32_t{0} - 1);
}

}  // namespace tessera
