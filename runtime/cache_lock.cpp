// A lock is tried again after 1, 2, 4, ... 20 ms until the time is over, because a blocking wait could not be
// bounded. What a file system without locks answers is an outcome, not an error.
#include "runtime/cache_lock.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/hash.h"

namespace tessera {

namespace {
// Byte offsets must be positive and end below 2^63: 61 bits of the name's digest.
std::int64_t byte_of(std::string_view name) {
  return static_cast<std::int64_t>(std::stoull(sha256_hex(name).substr(0, 16), nullptr, 16) >> 3);
}
}  // namespace

ProcessLock::ProcessLock(const Files& files, int folder, const std::string& lock_file, std::string_view name,
                         const LockWait& wait)
    : files_(files) {
  descriptor_ = files_.create_file(folder, lock_file, false);
  if (descriptor_ < 0) return;
  byte_ = byte_of(name);
  const auto start = std::chrono::steady_clock::now();
  bool is_long = false;
  std::chrono::milliseconds pause{1};
  while (true) {
    const int verdict = files_.try_lock(descriptor_, byte_);
    if (verdict >= 0) {
      outcome_ = LockOutcome::held;
      return;
    }
    if (verdict == -EINTR) continue;
    outcome_ = verdict == -EAGAIN ? LockOutcome::timed_out : LockOutcome::unsupported;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (verdict != -EAGAIN || waited >= wait.longest) break;
    if (wait.stop.stop_requested()) {
      outcome_ = LockOutcome::stopped;
      break;
    }
    if (!is_long && wait.on_long && waited >= wait.long_after) {
      is_long = true;
      try {
        wait.on_long();
      } catch (...) {
        files_.close(descriptor_);  // no destructor runs for what was not constructed
        throw;
      }
    }
    has_waited_ = true;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds{20});
  }
  files_.close(descriptor_);
  descriptor_ = -1;
}

void ProcessLock::release() {
  if (descriptor_ < 0) return;
  // Closing is not enough: a child forked meanwhile shares the open file and would keep the lock.
  files_.unlock(descriptor_, byte_);
  files_.close(descriptor_);
  descriptor_ = -1;
}

}  // namespace tessera
