// Locks among processes: one byte of one file for each name, taken as an open-file-description lock. The kernel gives
// it back when its holder dies, no file is left behind for each key, and two threads of one process exclude each other
// too. Two names share a byte with a probability of 2^-61: then they wait for each other, nothing worse.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "runtime/cache_files.h"

namespace tessera {

enum class LockOutcome : std::uint8_t {
  held,
  timed_out,   ///< somebody else held it all the time
  stopped,     ///< the same, until a stop request ended the wait
  unsupported  ///< this file system has no locks, or the lock file cannot be opened or is none
};

/// How long to wait for a lock, and what may happen meanwhile.
struct LockWait {
  std::chrono::milliseconds longest{0};
  std::stop_token stop{};
  std::function<void()> on_long{};  ///< called once where the wait has taken `long_after`; may be empty
  std::chrono::milliseconds long_after{2000};
};

class ProcessLock {
 public:
  /// Tries at once, then with growing pauses (1 to 20 ms) until the wait is over.
  ProcessLock(const Files& files, int folder, const std::string& lock_file, std::string_view name,
              const LockWait& wait);
  ~ProcessLock() { release(); }
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

  LockOutcome outcome() const noexcept { return outcome_; }
  bool has_waited() const noexcept { return has_waited_; }
  void release();

 private:
  const Files& files_;
  int descriptor_ = -1;
  std::int64_t byte_ = 0;
  LockOutcome outcome_ = LockOutcome::unsupported;
  bool has_waited_ = false;
};

}  // namespace tessera
