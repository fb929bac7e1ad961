// What every kind of store shares: a failure that may pass is tried again, with pauses, within the call's bounds.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "runtime/remote/store.h"

namespace tessera::remote {

inline constexpr int kAttempts = 3;
inline constexpr std::chrono::milliseconds kFirstPause{100};

/// A hundredth of a second at a time, so that a stop does not wait.
inline bool pause_unless_stopped(std::chrono::milliseconds time, const Bounds& bounds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = std::min(Clock::now() + time, bounds.until);
  while (Clock::now() < until) {
    if (bounds.is_stopped && bounds.is_stopped()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(std::chrono::milliseconds{10}, until - Clock::now()));
  }
  return true;
}

/// Between a half and the whole of `longest`: machines that met the same fault do not come back together.
inline std::chrono::milliseconds some_of(std::chrono::milliseconds longest) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds{
      std::uniform_int_distribution<std::int64_t>(longest.count() / 2, longest.count())(random)};
}

/// once() until it does not fail, three times at most.
template <class Once>
Answer with_attempts(const Bounds& bounds, const Once& once) {
  using Clock = std::chrono::steady_clock;
  for (int attempt = 1;; ++attempt) {
    Answer answer = once();
    if (!may_pass(answer) || attempt == kAttempts || Clock::now() >= bounds.until) return answer;
    if (!pause_unless_stopped(some_of(kFirstPause * (1 << (attempt - 1))), bounds))
      return {.verdict = Verdict::stopped};
    if (Clock::now() >= bounds.until) return answer;
  }
}

}  // namespace tessera::remote
