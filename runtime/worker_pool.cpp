#include "runtime/worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"

namespace tessera {

namespace {

constexpr std::size_t kBytesPerCompile = std::size_t{512} << 20;

/// What the workers of one call share.
class Run {
 public:
  Run(std::size_t count, const std::function<void(std::size_t)>& job, std::stop_token stop)
      : count_(count), job_(job), stop_(std::move(stop)) {}

  void work() {
    while (!stop_.stop_requested() && !has_failed_.load(std::memory_order_relaxed)) {
      const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      try {
        job_(index);
        done_.fetch_add(1, std::memory_order_relaxed);
      } catch (...) {
        keep(index, std::current_exception());
      }
    }
  }

  /// After every worker has ended.
  std::size_t result() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return done_.load();
  }

 private:
  void keep(std::size_t index, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    has_failed_.store(true, std::memory_order_relaxed);
    if (failure_ != nullptr && failed_index_ < index) return;
    failure_ = std::move(failure);
    failed_index_ = index;
  }

  const std::size_t count_;
  const std::function<void(std::size_t)>& job_;
  const std::stop_token stop_;
  std::atomic<std::size_t> next_{0}, done_{0};
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::size_t failed_index_ = 0;
};

}  // namespace

std::size_t for_each_index(std::size_t count, int num_workers, const std::function<void(std::size_t)>& job,
                           std::stop_token stop) {
  Run run(count, job, std::move(stop));
  const std::size_t workers = std::min(count, static_cast<std::size_t>(std::max(1, num_workers)));
  {
    std::vector<std::jthread> helpers;  // joined at the end of this block, also when a thread cannot be started
    for (std::size_t i = 1; i < workers; ++i) {
      try {
        helpers.push_back(quiet_thread([&run] { run.work(); }));
      } catch (const std::system_error&) {
        break;  // the threads that there are do the work
      }
    }
    run.work();
  }
  return run.result();
}

int num_workers_for(unsigned hardware_threads, std::size_t free_bytes) noexcept {
  const std::size_t threads = std::max(1u, hardware_threads);
  const std::size_t fit = free_bytes == 0 ? threads : std::max<std::size_t>(1, free_bytes / kBytesPerCompile);
  return static_cast<int>(std::min(threads, fit));
}

int default_num_workers() {
  const long pages = sysconf(_SC_AVPHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  const bool is_known = pages > 0 && page_bytes > 0;
  return num_workers_for(std::thread::hardware_concurrency(),
                         is_known ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) : 0);
}

}  // namespace tessera
