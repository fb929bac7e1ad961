// What a launch is asked while it runs.
#pragma once

#include <functional>
#include <mutex>

#include "emulator/scheduler.h"
#include "tessera/emulator/device.h"

namespace tessera::emulator {

/// What a grid that runs as a whole is asked now and then: to rest (DeviceOptions::rest), and whether to end.
class Questions {
 public:
  Questions(const DeviceOptions& given, std::unique_lock<std::mutex>& lock, bool may_rest)
      : rest_(may_rest ? given.rest : nullptr), is_interrupted_(given.is_interrupted), lock_(lock) {}

  bool ask(Launch& launch) {
    if (rest_ && launch.time >= next_rest_) {
      const double before = seconds_now();
      lock_.unlock();
      const std::uint64_t turn = rest_();
      lock_.lock();
      next_rest_ = launch.time + turn;
      launch.start_seconds += seconds_now() - before;  // it has not run meanwhile
    }
    if (!is_interrupted_ || seconds_now() < next_question_) return false;
    next_question_ = seconds_now() + kSecondsBetween;
    return is_interrupted_();
  }

 private:
  static constexpr double kSecondsBetween = 0.1;
  const std::function<std::uint64_t()> rest_;
  const std::function<bool()> is_interrupted_;
  std::unique_lock<std::mutex>& lock_;
  std::uint64_t next_rest_ = 2'000'000;
  double next_question_ = 0;
};

}  // namespace tessera::emulator
