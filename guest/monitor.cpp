#include "guest/monitor.h"

#include <utility>

namespace tessera::guest {

void Monitor::take_turn(Lock& lock, int depth) {
  const std::uint64_t mine = next_++;
  turn_.wait(lock, [&] { return served_ == mine; });
  owner_ = std::this_thread::get_id();
  depth_ = depth;
}

int Monitor::leave(Lock& lock) {
  const int depth = std::exchange(depth_, 0);
  owner_ = std::thread::id();
  if (!lock.owns_lock()) lock.lock();
  ++served_;
  turn_.notify_all();
  return depth;
}

void Monitor::lock() {
  if (owner_ == std::this_thread::get_id()) {
    ++depth_;
    return;
  }
  Lock lock(mutex_);
  take_turn(lock, 1);
}

bool Monitor::try_lock() {
  if (owner_ == std::this_thread::get_id()) {
    ++depth_;
    return true;
  }
  Lock lock(mutex_, std::try_to_lock);  // a fork may have left it locked for ever
  if (!lock.owns_lock() || next_ != served_) return false;
  take_turn(lock, 1);
  return true;
}

void Monitor::unlock() {
  if (depth_ > 1) {
    --depth_;
    return;
  }
  Lock lock(mutex_, std::defer_lock);
  leave(lock);
}

void Monitor::yield() {
  Lock lock(mutex_, std::defer_lock);
  const int depth = leave(lock);
  take_turn(lock, depth);
}

void Monitor::wait_for(std::chrono::microseconds most) {
  Lock lock(mutex_, std::defer_lock);
  const int depth = leave(lock);
  news_.wait_for(lock, most, [&, known = news_told_] { return news_told_ != known; });
  take_turn(lock, depth);
}

void Monitor::tell_news() {
  const std::lock_guard lock(mutex_);
  ++news_told_;
  news_.notify_all();
}

}  // namespace tessera::guest
