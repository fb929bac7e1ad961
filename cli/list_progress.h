// Progress over the problems of a list, with the time left: what warm and check show before the first compile.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/call.h"

namespace tessera::cli {

class ListProgress {
 public:
  /// what: "counting kernels"
  ListProgress(const Call& call, std::string what, std::int64_t total)
      : call_(call), what_(std::move(what)), total_(total) {}

  /// So many are done. Shown at every 1,024th at most ten times a second, so that a short list shows nothing.
  void at(std::int64_t done) {
    constexpr auto kPeriod = std::chrono::milliseconds(100);
    if (done == 0 || done % 1024 != 0) return;
    const Clock::time_point now = Clock::now();
    if (shown_ != Clock::time_point() && now - shown_ < kPeriod) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double left = seconds / static_cast<double>(done) * static_cast<double>(total_ - done);
    call_.progress(
        fmt::format("{}: {} of {}, {} left", what_, grouped(done), counted(total_, "problem"), duration(left)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Call& call_;
  std::string what_;
  std::int64_t total_;
  Clock::time_point start_ = Clock::now(), shown_{};
};

}  // namespace tessera::cli
