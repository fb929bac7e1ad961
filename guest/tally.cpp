#include "guest/tally.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tessera::guest {
namespace {

// What say() writes. A handler of a signal has no other way to it than memory that does not move.
char summary[512];
std::atomic<std::size_t> summary_bytes{0};
std::atomic<pid_t> owner{0};
std::atomic<bool> is_bad{false};

void say_summary() {
  if (owner != getpid()) return;  // a child of vfork has its parent's memory
  const std::size_t bytes = summary_bytes.exchange(0);
  if (bytes != 0 && ::write(STDERR_FILENO, summary, bytes) < 0) return;
}

constexpr int kDeadly[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGTERM};

void end_by(int signal) {
  say_summary();
  std::signal(signal, SIG_DFL);
  raise(signal);  // again when this returns, and as if nobody had listened
}

// Where the program has no handler of its own; one that it sets later takes this one's place.
void watch_signals() {
  for (const int signal : kDeadly) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL || (now.sa_flags & SA_SIGINFO) != 0)
      continue;
    struct sigaction ours {};
    ours.sa_handler = end_by;
    ours.sa_flags = SA_ONSTACK;
    sigaction(signal, &ours, nullptr);
  }
}

}  // namespace

void Tally::open(const std::string& report, std::string_view gpu, std::string_view arch) {
  gpu_ = gpu;
  arch_ = arch;
  owner = getpid();
  summary_bytes = 0;
  is_bad = false;
  has_reader_ = !report.empty();
  if (!has_reader_) {
    static bool is_first = true;
    if (std::exchange(is_first, false)) {
      watch_signals();
      at_quick_exit(say_summary);
    }
    return;
  }
  const int file = ::open((report + ".counts").c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  struct stat facts {};
  const bool is_known = fstat(file, &facts) == 0 && facts.st_size > 0;
  const auto bytes = is_known ? static_cast<std::size_t>(facts.st_size) : 0;
  void* const all = is_known ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (all == MAP_FAILED) return;
  // The first text's place counts those that are taken.
  const std::uint64_t index = std::atomic_ref(*static_cast<std::uint64_t*>(all)).fetch_add(1) + 1;
  if (index < bytes / kBytes) place_ = static_cast<char*>(all) + index * kBytes;
  write();
}

void Tally::write() {
  if (!has_reader_) {
    const int bytes = std::snprintf(
        summary, sizeof(summary), "tessera: %s: %llu launches, %llu failures, %llu hazards, %llu problems\n",
        gpu_.c_str(), static_cast<unsigned long long>(launches), static_cast<unsigned long long>(failures),
        static_cast<unsigned long long>(hazards), static_cast<unsigned long long>(problems));
    summary_bytes = static_cast<std::size_t>(bytes);
    return;
  }
  if (place_ == nullptr) return;
  char text[kBytes] = {};
  std::snprintf(text, sizeof(text),
                R"({"kind": "process", "gpu": "%s", "arch": "%s", "launches": %llu, "warp_instructions": %llu, )"
                R"("seconds": %.9g})"
                "\n",
                gpu_.c_str(), arch_.c_str(), static_cast<unsigned long long>(launches),
                static_cast<unsigned long long>(warp_instructions), seconds);
  std::memcpy(place_, text, sizeof(text));
}

void Tally::say() { say_summary(); }
void Tally::fail(bool fails) { is_bad = fails; }

// Of eight bytes at a time: what is compared may be large.
std::uint64_t hash_of(const void* bytes, std::size_t count) {
  const auto* const at = static_cast<const unsigned char*>(bytes);
  std::uint64_t hash = 0xCBF29CE484222325 ^ count, word = 0;
  std::size_t i = 0;
  for (; i + sizeof(word) <= count; i += sizeof(word)) {
    std::memcpy(&word, at + i, sizeof(word));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  }
  for (; i < count; ++i) hash = (hash ^ at[i]) * 0x100000001B3;
  return hash ^ hash >> 29;
}

}  // namespace tessera::guest

// The C library's, but for the summary; in place of it by the preload. Its own functions (exit, quick_exit) do not come
// here.
extern "C" {
[[noreturn]] void _exit(int status) {
  const bool is_ours = tessera::guest::owner == getpid();
  if (is_ours) tessera::guest::say_summary();
  for (;;) syscall(SYS_exit_group, is_ours && status == 0 && tessera::guest::is_bad ? 1 : status);
}
[[noreturn]] void _Exit(int status) noexcept { _exit(status); }
}
