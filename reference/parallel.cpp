#include "reference/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"

namespace tessera::reference {

void parallel_for(std::int64_t count, int jobs, const std::function<void(std::int64_t)>& body) {
  if (jobs <= 0) jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const auto threads = static_cast<std::size_t>(std::min<std::int64_t>(jobs, count));
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  if (threads <= 1) {
    work();
  } else {
    std::vector<std::thread> pool;
    pool.reserve(threads - 1);
    try {
      for (std::size_t i = 0; i + 1 < threads; ++i) pool.push_back(quiet_thread<std::thread>(work));
    } catch (const std::system_error&) {  // the threads that there are do the work
    }
    work();
    for (std::thread& thread : pool) thread.join();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera::reference
