#include "guest/coroutine.h"

#include <thread>
#include <utility>

#include "base/quiet_thread.h"

namespace tessera::guest {
namespace {

thread_local Coroutine* of_this_thread = nullptr;

}  // namespace

Coroutine* Coroutine::current() { return of_this_thread; }

std::vector<std::shared_ptr<Coroutine>>& Coroutine::idle() {
  static auto* const all = new std::vector<std::shared_ptr<Coroutine>>;
  return *all;
}

std::shared_ptr<Coroutine> Coroutine::start(std::function<cudaError_t()> work) {
  std::shared_ptr<Coroutine> made;
  if (idle().empty()) {
    made.reset(new Coroutine);
    quiet_thread<std::thread>([made] { made->run(); }).detach();
  } else {
    made = std::move(idle().back());
    idle().pop_back();
  }
  const std::lock_guard lock(made->mutex_);
  made->work_ = std::move(work);
  made->has_ended_ = false;
  return made;
}

bool Coroutine::go_on(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  turn_ = turn;
  runs_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !runs_; });
  if (has_ended_ && problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
  return has_ended_;
}

std::uint64_t Coroutine::rest() {
  std::unique_lock lock(mutex_);
  runs_ = false;
  changed_.notify_all();
  changed_.wait(lock, [&] { return runs_; });
  return turn_;
}

void Coroutine::run() {
  of_this_thread = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return runs_; });
    lock.unlock();
    result_ = cudaSuccess;
    try {
      result_ = work_();
    } catch (...) {
      problem_ = std::current_exception();
    }
    work_ = nullptr;
    lock.lock();
    has_ended_ = true;
    runs_ = false;
    changed_.notify_all();
  }
}

}  // namespace tessera::guest
