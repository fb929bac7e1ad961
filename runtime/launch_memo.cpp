#include "runtime/launch_memo.h"

#include <algorithm>

#include "runtime/launch_program.h"

namespace tessera {

/// The right to use the memo, if nobody has it.
class LaunchMemo::Turn {
 public:
  explicit Turn(std::atomic_flag& is_taken) noexcept
      : is_taken_(is_taken), is_mine_(!is_taken.test_and_set(std::memory_order_acquire)) {}
  ~Turn() {
    if (is_mine_) is_taken_.clear(std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const noexcept { return is_mine_; }

 private:
  std::atomic_flag& is_taken_;
  const bool is_mine_;
};

LaunchMemo::LaunchMemo(const LaunchPlan& plan, std::size_t num_values, std::vector<std::size_t> buffers_of_maps)
    : num_buffers_(plan.buffers.size()),
      num_steps_(plan.steps.size()),
      buffers_of_maps_(std::move(buffers_of_maps)),
      given_(plan.sizes.size()),
      values_(num_values),
      addresses_(buffers_of_maps_.size()),
      maps_(buffers_of_maps_.size()) {}

bool LaunchMemo::has_sizes(const LaunchArguments& arguments) const noexcept {
  return is_filled_ && std::ranges::equal(arguments.sizes, given_);
}

bool LaunchMemo::recall(const LaunchArguments& arguments, LaunchFrame& frame) noexcept {
  const Turn turn(is_taken_);
  if (!turn || !has_sizes(arguments)) return false;
  std::ranges::copy(values_, frame.values);
  for (std::size_t i = 0; i < num_steps_; ++i) {
    std::ranges::copy(grids_[i], frame.grids[i]);
    frame.is_skipped[i] = is_skipped_[i];
  }
  frame.workspace_bytes = workspace_bytes_;
  frame.encoded = 0;
  if (arguments.buffers.size() != num_buffers_) return true;  // which is refused next
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const std::uint32_t bit = 1u << i;
    if ((encoded_ & bit) == 0 || addresses_[i] != arguments.buffers[buffers_of_maps_[i]]) continue;
    frame.maps[i] = maps_[i];
    frame.encoded |= bit;
  }
  return true;
}

void LaunchMemo::keep(const LaunchArguments& arguments, const LaunchFrame& frame, bool is_recalled) noexcept {
  const Turn turn(is_taken_);
  if (!turn) return;
  // Another thread may have kept other sizes since.
  if (!is_recalled || !has_sizes(arguments)) {
    std::ranges::copy(arguments.sizes, given_.begin());
    std::copy_n(frame.values, values_.size(), values_.begin());
    for (std::size_t i = 0; i < num_steps_; ++i) {
      std::ranges::copy(frame.grids[i], grids_[i].begin());
      is_skipped_[i] = frame.is_skipped[i];
    }
    workspace_bytes_ = frame.workspace_bytes;
    encoded_ = 0;
    is_filled_ = true;
  }
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const std::uint32_t bit = 1u << i;
    const DevicePointer address = arguments.buffers[buffers_of_maps_[i]];
    if ((frame.encoded & bit) == 0 || ((encoded_ & bit) != 0 && addresses_[i] == address)) continue;
    maps_[i] = frame.maps[i];
    addresses_[i] = address;
    encoded_ |= bit;
  }
}

}  // namespace tessera
