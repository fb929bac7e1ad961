// A thread that runs while the one that asks it to is waiting, and never beside it.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tessera::guest {

class Coroutine {
 public:
  /// Its thread may rest for ever: a process ends without it. Threads whose work has ended are taken again: to start
  /// one costs more than a small launch.
  static std::shared_ptr<Coroutine> start(std::function<cudaError_t()> work);
  /// For the next work. Precondition: it has ended.
  static void keep(std::shared_ptr<Coroutine> ended) { idle().push_back(std::move(ended)); }
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  /// Until it rests or ends; whether it has ended. Throws what the work threw.
  bool go_on(std::uint64_t turn);
  cudaError_t result() const { return result_; }

  /// Of the calling thread; null: it is none.
  static Coroutine* current();
  /// Until it may go on; the turn that it got.
  std::uint64_t rest();

 private:
  Coroutine() = default;
  static std::vector<std::shared_ptr<Coroutine>>& idle();
  void run();

  std::function<cudaError_t()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;
  bool runs_ = false, has_ended_ = false;
  cudaError_t result_ = cudaSuccess;
  std::exception_ptr problem_;
};

}  // namespace tessera::guest
