// Runs a LaunchPlan on a Device. Construction does all that can be done ahead (names to slots, entries, parameter
// layout against the driver's, shared memory limits); launch() only evaluates expressions, checks domain, buffers and
// tensor-map rules, encodes maps and launches the steps; where the last launch had the same sizes, what follows from
// them is taken from there (launch_memo.h). Links neither planner nor templates: cubin + plan.json are enough.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/device.h"
#include "tessera/launch.h"

namespace tessera {

inline constexpr std::int64_t kUseDefault = INT64_MIN;  ///< a size that the caller leaves to its default

/// Values in the plan's order of sizes, scalars and buffers. A size may be kUseDefault, a scalar NaN for its default. A
/// buffer may be null when it is optional or has no elements.
struct LaunchArguments {
  std::span<const std::int64_t> sizes;
  std::span<const double> scalars;
  std::span<const DevicePointer> buffers;
  DevicePointer workspace = 0;
  std::int64_t workspace_bytes = 0;
};

struct LauncherOptions {
  /// Before each launch the device is asked whether its kernels can use each buffer's memory (PointerProbe): a host
  /// pointer, or one that was freed, is Error{usage} then. Takes microseconds; nothing where it is not set.
  bool check_pointers = false;
};

class Launcher {
 public:
  /// Loads the image in the device's current context. Throws Error{usage} for a plan that check_launch_plan refuses,
  /// Error{device} when code and plan disagree (entry missing, parameter layout) or the device cannot run the code. The
  /// device must outlive the launcher.
  Launcher(Device& device, LaunchPlan plan, const Image& image, LauncherOptions options = {});
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  const LaunchPlan& plan() const noexcept;
  /// Index of a name in the plan's order; throws Error{usage} with the names that exist.
  int size_index(std::string_view name) const;
  int scalar_index(std::string_view name) const;
  int buffer_index(std::string_view name) const;
  std::int64_t workspace_bytes(const LaunchArguments& arguments) const;
  /// The sizes with their defaults filled in, in the plan's order, checked as launch() checks them.
  std::vector<std::int64_t> resolve_sizes(const LaunchArguments& arguments) const;

  /// Thread-safe, allocates nothing, synchronises nothing. Throws Error{usage} for arguments outside the domain, a
  /// missing or misaligned pointer, a tensor map that breaks a rule; Error{device} when the driver refuses. All that is
  /// checked is checked before the first step starts; a step whose grid is 0 in a dimension is skipped with its maps.
  void launch(Stream stream, const LaunchArguments& arguments) const;

  /// Every tensor map of this launch, resolved: for `plan`, `check` and tests. Buffers may be 0 (address rules are then
  /// not checked).
  std::vector<std::pair<std::string, ResolvedTensorMap>> resolve_tensor_maps(const LaunchArguments& arguments) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
