// What is kept for its next use, connections above all. A child after fork() shares its parent's: a request of one
// would get the other's reply, and a farewell would end the connection for both. So the child leaves them alone, open.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::remote {

/// Safe from many threads. `Thing` is a pointer, or a unique one.
template <class Thing>
class Idle {
 public:
  /// The one that was used last.
  std::optional<Thing> take() {
    const std::lock_guard lock(mutex_);
    leave_parents_alone();
    if (things_.empty()) return std::nullopt;
    std::optional<Thing> last(std::move(things_.back()));
    things_.pop_back();
    return last;
  }
  void put(Thing thing) {
    const std::lock_guard lock(mutex_);
    leave_parents_alone();
    things_.push_back(std::move(thing));
  }

 private:
  void leave_parents_alone() {
    if (owner_ == ::getpid()) return;
    new std::vector<Thing>(std::move(things_));  // never destroyed
    things_.clear();
    owner_ = ::getpid();
  }

  std::mutex mutex_;
  std::vector<Thing> things_;
  pid_t owner_ = ::getpid();
};

}  // namespace tessera::remote
