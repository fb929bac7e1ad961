// One kernel on one device: buffers with poisoned outputs and guards around them, launch, read back, timing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "cli/launch_sizes.h"
#include "reference/tensor.h"
#include "tessera/jit.h"

namespace tessera::cli {

class DeviceRun {
 public:
  /// sizes: in the plan's order. inputs: by buffer name, dense. Buffers that the plan calls outputs start poisoned;
  /// optional ones that skip_optional names are passed as null.
  DeviceRun(Device& device, Kernel& kernel, std::vector<std::int64_t> sizes, std::vector<double> scalars,
            const std::map<std::string, reference::Tensor>& inputs);
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  void launch();
  /// Outputs as the launches left them, by name. problems: guards that were overwritten.
  std::map<std::string, reference::Tensor> read_outputs(std::vector<std::string>& problems);
  /// Median of `repeat` launches in microseconds, each timed by two events after the L2 was overwritten.
  double time_us(int repeat);

 private:
  struct Buffer {
    const BufferSpec* spec = nullptr;
    std::vector<std::int64_t> shape;
    DevicePointer base = 0;  // of the guard before
    std::size_t bytes = 0;
    DevicePointer data() const;
  };
  LaunchArguments arguments() const;

  Device& device_;
  Kernel& kernel_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<Buffer> buffers_;
  std::vector<DevicePointer> pointers_;
  DevicePointer workspace_ = 0;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::cli
