// Stores that change nothing (RaceDetector::stores_same).
#pragma once

#include <cstring>

#include "emulator/findings/race.h"
#include "emulator/machine.h"

namespace tessera::emulator {

// While it lives the race detector knows whether the store changes anything.
class SameStore {
 public:
  explicit SameStore(Warp& w) : race_(w.race ? w.launch->race.get() : nullptr) {
    if (race_ != nullptr) race_->stores_same = true;
  }
  ~SameStore() {
    if (race_ != nullptr) race_->stores_same = false;
  }
  SameStore(const SameStore&) = delete;
  SameStore& operator=(const SameStore&) = delete;
  void compare(const std::byte* there, const void* value, std::size_t bytes) {
    if (race_ != nullptr && race_->stores_same) race_->stores_same = std::memcmp(there, value, bytes) == 0;
  }

 private:
  RaceDetector* race_;
};

}  // namespace tessera::emulator
