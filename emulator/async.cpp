#include "emulator/async.h"

#include <algorithm>

#include "emulator/machine.h"
#include "emulator/observer.h"
#include "emulator/wgmma.h"

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
    case Schedule::adversarial: {
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
  operation->ready_at = launch.time + delay(launch);
  next_ready_ = std::min(next_ready_, operation->ready_at);
  if (launch.options.observer != nullptr) launch.options.observer->pushed(*operation, launch.time);
  pending_.push_back(std::move(operation));
  if (launch.options.schedule == Schedule::eager) poll(launch);
}

bool AsyncQueue::can_complete(std::size_t index) const {
  if (!pending_[index]->is_ready()) return false;
  const void* chain = pending_[index]->chain;
  if (chain == nullptr) return true;
  for (std::size_t i = 0; i < index; ++i)
    if (pending_[i]->chain == chain) return false;
  return true;
}

void AsyncQueue::complete(std::size_t index, Launch& launch) {
  const std::unique_ptr<AsyncOperation> operation = std::move(pending_[index]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  ++launch.progress;
  Observer* const observer = launch.options.observer;
  if (observer != nullptr) observer->completing(*operation, launch.time);
  operation->complete(launch);
  if (observer != nullptr) observer->completed(*operation, launch.time);
}

void AsyncQueue::update_next_ready() {
  next_ready_ = ~std::uint64_t{0};
  for (const auto& operation : pending_) next_ready_ = std::min(next_ready_, operation->ready_at);
}

void AsyncQueue::poll(Launch& launch) {
  for (std::size_t i = 0; i < pending_.size();) {
    if (pending_[i]->ready_at <= launch.time && can_complete(i)) {
      complete(i, launch);
      i = 0;  // a completion may have queued another operation, or freed one of its chain
    } else {
      ++i;
    }
  }
  update_next_ready();
}

bool AsyncQueue::complete_one(Launch& launch) {
  if (pending_.empty()) return false;
  std::size_t index = 0;
  if (launch.options.schedule == Schedule::adversarial) index = launch.random.below(pending_.size());
  // What is not ready waits for an older one.
  while (!can_complete(index)) --index;
  complete(index, launch);
  update_next_ready();
  return true;
}

}  // namespace tessera::emulator
