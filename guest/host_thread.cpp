#include "guest/host_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/quiet_thread.h"

namespace tessera::guest {
namespace {

thread_local bool is_this_thread = false;

struct Queue {
  std::mutex mutex;
  std::condition_variable has_work;
  std::deque<std::function<void()>> works;
  bool has_thread = false;
};
Queue& queue() {
  static auto* const made = new Queue;
  return *made;
}

void run_works() {
  is_this_thread = true;
  Queue& all = queue();
  std::unique_lock lock(all.mutex);
  for (;;) {
    all.has_work.wait(lock, [&] { return !all.works.empty(); });
    {
      const std::function<void()> work = std::move(all.works.front());
      all.works.pop_front();
      lock.unlock();
      work();
    }
    lock.lock();
  }
}

}  // namespace

bool is_host_thread() { return is_this_thread; }

void run_on_host_thread(std::function<void()> work) {
  Queue& all = queue();
  const std::lock_guard lock(all.mutex);
  all.works.push_back(std::move(work));
  if (!std::exchange(all.has_thread, true)) quiet_thread<std::thread>(run_works).detach();
  all.has_work.notify_one();
}

}  // namespace tessera::guest
