// The lock that every call holds: recursive, as functions of the API call each other, and fair, so that a thread that
// waits for launches by working on them does not keep others out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace tessera::guest {

class Monitor {
 public:
  void lock();
  bool try_lock();
  void unlock();

  // Of a thread that holds it, however often: others have it meanwhile.
  /// Lets in those who ask for it now.
  void yield();
  /// Until somebody tells news, or so long.
  void wait_for(std::chrono::microseconds most);
  void tell_news();

 private:
  using Lock = std::unique_lock<std::mutex>;
  void take_turn(Lock& lock, int depth);
  int leave(Lock& lock);

  std::mutex mutex_;  ///< of what follows, for moments
  std::condition_variable turn_, news_;
  std::uint64_t next_ = 0, served_ = 0;  ///< who asks first gets it first
  std::uint64_t news_told_ = 0;
  int depth_ = 0;  ///< the owner's
  std::atomic<std::thread::id> owner_{};
};

}  // namespace tessera::guest
