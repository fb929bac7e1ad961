// What a launcher's last launch computed from its sizes, for the next launch of the same sizes: a layer after the other
// of one model, a graph's capture, a benchmark's loop. The values follow from the sizes alone; a tensor map follows
// from them and its buffer's address, so it is kept with that address.
//
// Thread-safe without waiting: a thread that finds the memo in use computes for itself and keeps nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "tessera/device.h"
#include "tessera/launch.h"

namespace tessera {

struct LaunchArguments;
struct LaunchFrame;

class LaunchMemo {
 public:
  /// Of a plan with so many sizes, buffers, steps and values; buffers_of_maps: the index of each tensor map's buffer.
  LaunchMemo(const LaunchPlan& plan, std::size_t num_values, std::vector<std::size_t> buffers_of_maps);

  /// True where `arguments` have the sizes of the launch that was kept last, as they were given: `frame` then has all
  /// values, grids, skipped steps and workspace bytes, and, marked in frame.encoded, the maps whose buffers are where
  /// they were. Nothing that depends on buffers, scalars or the workspace has been checked.
  bool recall(const LaunchArguments& arguments, LaunchFrame& frame) noexcept;
  /// `frame` is whole and everything in it was checked. is_recalled: what recall() returned for this launch; then only
  /// maps can be new, and only those are written.
  void keep(const LaunchArguments& arguments, const LaunchFrame& frame, bool is_recalled) noexcept;

 private:
  class Turn;
  bool has_sizes(const LaunchArguments& arguments) const noexcept;

  std::size_t num_buffers_, num_steps_;
  std::vector<std::size_t> buffers_of_maps_;
  std::atomic_flag is_taken_ = ATOMIC_FLAG_INIT;
  // Read and written by whoever took it.
  bool is_filled_ = false;
  std::vector<std::int64_t> given_;  // sizes
  std::vector<std::int64_t> values_;
  std::array<std::array<std::uint32_t, 3>, kMaxSteps> grids_{};
  std::array<bool, kMaxSteps> is_skipped_{};
  std::int64_t workspace_bytes_ = 0;
  std::uint32_t encoded_ = 0;             // bit i: maps_[i] is there
  std::vector<DevicePointer> addresses_;  // of the maps
  std::vector<TensorMapObject> maps_;
};

}  // namespace tessera
