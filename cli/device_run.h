// One kernel on one device: buffers with poisoned outputs and guards around them, launch, read back, timing. In the
// emulator a buffer's allocation is its extent and nothing else: an access beyond is a failure there, a read too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/tensor.h"
#include "tessera/device.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/jit.h"

namespace tessera::emulator {
class EmulatedDevice;
}

namespace tessera::cli {

/// Memory of a device, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, std::size_t bytes) : device_(&device), address_(device.allocate(bytes)) {}
  ~DeviceMemory() {
    if (address_ != 0) device_->free(address_);
  }
  DeviceMemory(DeviceMemory&& other) noexcept : device_(other.device_), address_(std::exchange(other.address_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  DevicePointer address() const { return address_; }

 private:
  Device* device_;
  DevicePointer address_;
};

/// An event, destroyed with the object.
class DeviceEvent {
 public:
  explicit DeviceEvent(Device& device) : device_(device), event_(device.create_event()) {}
  ~DeviceEvent() { device_.destroy(event_); }
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  Event event() const { return event_; }

 private:
  Device& device_;
  Event event_;
};

class DeviceRun {
 public:
  /// sizes: in the plan's order. inputs: by buffer name, dense; they are laid out as the sizes say. Buffers that the
  /// plan calls outputs, the gaps between rows and the workspace start poisoned; optional ones that skip_optional names
  /// are passed as null. inputs must outlive this.
  DeviceRun(Device& device, Kernel& kernel, std::vector<std::int64_t> sizes, std::vector<double> scalars,
            const std::map<std::string, reference::Tensor>& inputs);
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  void launch();
  /// Everything as before the first launch: inputs in place, outputs and guards poisoned.
  void reset();
  /// Outputs as the launches left them, by name, dense. problems: guards and gaps between rows that were overwritten.
  std::map<std::string, reference::Tensor> read_outputs(std::vector<std::string>& problems);
  /// Whether launches add to what a buffer holds: another one leaves other bits, and sums have no fixed order.
  bool is_added_to(const std::string& name) const;
  /// Median of `repeat` launches in microseconds, each timed by two events after the L2 was overwritten.
  double time_us(int repeat);

 private:
  struct Buffer {
    const BufferSpec* spec = nullptr;
    const reference::Tensor* input = nullptr;
    std::vector<std::int64_t> shape, strides;
    bool is_dense = true;
    std::size_t bytes = 0;        // gaps between rows included
    std::size_t guard_bytes = 0;  // before and behind
    DeviceMemory memory;
    DevicePointer base() const { return memory.address(); }
    DevicePointer data() const { return base() + guard_bytes; }
  };
  LaunchArguments arguments() const;
  /// Nobody has written there: the emulator tells of a kernel that reads it.
  void poison(DevicePointer to, std::size_t bytes);
  void fill(const Buffer& buffer);
  void check_guards(const Buffer& buffer, std::vector<std::string>& problems);
  reference::Tensor read_output(const Buffer& buffer, std::vector<std::string>& problems);

  Device& device_;
  emulator::EmulatedDevice* emulated_ = nullptr;  // device_, where it is one
  Kernel& kernel_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<Buffer> buffers_;
  std::vector<DevicePointer> pointers_;
  std::optional<DeviceMemory> workspace_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::cli
