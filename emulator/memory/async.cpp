#include "emulator/memory/async.h"

#include <algorithm>

#include "emulator/machine.h"
#include "emulator/observers/observer.h"
#include "emulator/tensor_cores/wgmma.h"
#include "emulator/time/clock.h"

namespace tessera::emulator {
namespace {

// When a new operation may complete, in instructions from now.
std::uint64_t delay(Launch& launch) {
  switch (launch.options.schedule) {
    case Schedule::eager:
      return 0;
    case Schedule::fair:
      return launch.random.below(600);
    case Schedule::lazy:
      return std::uint64_t{1} << 60;
    case Schedule::adversarial:
    case Schedule::weak:
    case Schedule::split: {
      const std::uint64_t kind = launch.random.below(4);
      return kind == 0 ? 0 : kind == 1 ? launch.random.below(200) : launch.random.below(20000);
    }
  }
  return 0;
}

}  // namespace

WarpgroupAsync::WarpgroupAsync() = default;
WarpgroupAsync::WarpgroupAsync(WarpgroupAsync&&) noexcept = default;
WarpgroupAsync::~WarpgroupAsync() = default;

void AsyncQueue::push(std::unique_ptr<AsyncOperation> operation, Launch& launch) {
  ++launch.statistics.async_operations;
  Clock* const clock = launch.options.clock;
  operation->ready_at = clock != nullptr ? clock->completion(*operation) : launch.time + delay(launch);
  if (launch.options.observer != nullptr) launch.options.observer->pushed(*operation, launch.time);
  const Number number = first_ + operations_.size();
  if (operation->chain != nullptr) chains_[operation->chain].push_back(number);
  operations_.push_back(std::move(operation));
  ++size_;
  if (is_first_of_chain(number)) waiting_.emplace(find(number)->ready_at, number);
  if (launch.options.schedule == Schedule::eager) poll(launch);
}

bool AsyncQueue::is_first_of_chain(Number number) const {
  const void* const chain = find(number)->chain;
  return chain == nullptr || chains_.at(chain).front() == number;
}

bool AsyncQueue::can_complete(Number number) const {
  return find(number) != nullptr && find(number)->is_ready() && is_first_of_chain(number);
}

void AsyncQueue::complete(Number number, Launch& launch) {
  const std::unique_ptr<AsyncOperation> operation = std::move(operations_[number - first_]);
  --size_;
  waiting_.erase({operation->ready_at, number});
  due_.erase(number);
  if (operation->chain != nullptr) {
    const auto chain = chains_.find(operation->chain);
    chain->second.pop_front();
    if (chain->second.empty())
      chains_.erase(chain);
    else
      waiting_.emplace(find(chain->second.front())->ready_at, chain->second.front());
  }
  for (; !operations_.empty() && operations_.front() == nullptr; ++first_) operations_.pop_front();
  ++launch.progress;
  Observer* const observer = launch.options.observer;
  if (launch.options.clock != nullptr) launch.options.clock->completing(*operation, static_cast<double>(launch.time));
  if (observer != nullptr) observer->completing(*operation, launch.time);
  operation->complete(launch);
  if (observer != nullptr) observer->completed(*operation, launch.time);
}

void AsyncQueue::poll(Launch& launch) {
  while (true) {
    while (!waiting_.empty() && waiting_.begin()->first <= launch.time) {
      due_.insert(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    // Anew after each: a completion may have queued another operation, or freed one of its chain.
    const auto next = std::find_if(due_.begin(), due_.end(), [&](Number number) { return find(number)->is_ready(); });
    if (next == due_.end()) return;
    complete(*next, launch);
  }
}

void AsyncQueue::tell_before_exit(const Cta& cta, Launch& launch) {
  for (Number number = first_; number < first_ + operations_.size();) {
    const bool is_told =
        number >= first_ && find(number) != nullptr && find(number)->only_tells(cta) && can_complete(number);
    if (is_told) complete(number, launch);  // which may move first_
    number = std::max(number + 1, first_);
  }
}

bool AsyncQueue::complete_one(Launch& launch) {
  if (empty()) return false;
  Number number = first_;
  if (is_random(launch.options.schedule)) {
    for (std::size_t left = launch.random.below(size_) + 1;; ++number)
      if (find(number) != nullptr && --left == 0) break;
  }
  // What is not ready waits for an older one.
  while (!can_complete(number)) --number;
  complete(number, launch);
  return true;
}

}  // namespace tessera::emulator
