#include "cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/quiet_thread.h"

namespace tessera::cli {

namespace {

constexpr auto kGrace = std::chrono::milliseconds(400);   // for the command to end by itself
constexpr auto kLatest = std::chrono::milliseconds(900);  // for a report that has begun
constexpr std::int64_t kPatience = 1'000'000'000;         // ns from which on a further signal ends the process at once

int g_pipe[2] = {-1, -1};
std::atomic<int> g_signal{0};
std::atomic<std::int64_t> g_first{0};

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The second of two signals in a row changes nothing: a terminal and a parent often send both.
extern "C" void on_interrupt(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) {
    const std::int64_t first = g_first.load();
    if (first != 0 && now_ns() - first > kPatience) _exit(128 + g_signal.load());
    return;
  }
  g_first = now_ns();
  const char byte = 0;
  [[maybe_unused]] const auto written = write(g_pipe[1], &byte, 1);
}

}  // namespace

Interrupt& Interrupt::of_process() {
  static Interrupt* const interrupt = new Interrupt;
  return *interrupt;
}

Interrupt::Interrupt() {
  if (pipe2(g_pipe, O_CLOEXEC) != 0) return;  // the signals keep their default
  quiet_thread<std::thread>([this] { wait(); }).detach();
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction inherited {};
    sigaction(signal, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // `nohup`, `cmd &` of a script
  }
}

int Interrupt::signal() const { return g_signal.load(); }

void Interrupt::set_last_words(std::function<void()> words) {
  const std::lock_guard lock(mutex_);
  state_ = words ? State::has_words : State::speaks;
  words_ = std::move(words);
}

void Interrupt::wait() {
  char byte = 0;
  while (read(g_pipe[0], &byte, 1) < 0) {
  }
  const auto start = std::chrono::steady_clock::now();
  source_.request_stop();
  while (true) {
    const auto waited = std::chrono::steady_clock::now() - start;
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::silent || (state_ == State::speaks && waited > kLatest)) leave(signal());
      if (state_ == State::has_words && waited > kGrace) {
        words_();
        _exit(128 + signal());
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Interrupt::leave(int signal) const {
  constexpr char kLine[] = "tessera: interrupted\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  _exit(128 + signal);
}

}  // namespace tessera::cli
