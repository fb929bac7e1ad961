#include "interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace interpreter {

namespace {

std::atomic<bool> is_ending{false};
std::atomic<int> callbacks{0};

/// Calls what may end the thread by unwinding it. To leave the handler would be fatal, to stay in it is not.
template <class F>
auto survive(const F& f) {
  try {
    return f();
  } catch (...) {
    while (true) ::pause();
  }
}

}  // namespace

Unlocked::~Unlocked() {
  survive([this] { PyEval_RestoreThread(thread_); });
}

Locked::Locked() : is_held_(false) {
  ++callbacks;
  if (is_ending) {
    --callbacks;
    return;
  }
  state_ = survive([] { return PyGILState_Ensure(); });
  is_held_ = true;
}

Locked::~Locked() {
  if (!is_held_) return;
  PyGILState_Release(state_);
  --callbacks;
}

void end_callbacks() {
  is_ending = true;
  const Unlocked unlocked;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (callbacks > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace interpreter
