// What a launch is given, by index: sizes, scalars, buffers and the workspace.
#pragma once

#include <tessera.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

struct LaunchValues {
  explicit LaunchValues(std::shared_ptr<tessera_kernel> of)
      : kernel(std::move(of)),
        sizes(tessera_kernel_count(kernel.get(), TESSERA_SIZE), TESSERA_USE_DEFAULT),
        scalars(tessera_kernel_count(kernel.get(), TESSERA_SCALAR), std::numeric_limits<double>::quiet_NaN()),
        buffers(tessera_kernel_count(kernel.get(), TESSERA_BUFFER), 0) {}

  /// As the C interface takes them; valid as long as these are.
  tessera_arguments get() const {
    tessera_arguments arguments{};
    arguments.struct_size = sizeof arguments;
    arguments.sizes = sizes.data();
    arguments.num_sizes = sizes.size();
    arguments.scalars = scalars.data();
    arguments.num_scalars = scalars.size();
    arguments.buffers = buffers.data();
    arguments.num_buffers = buffers.size();
    arguments.workspace = workspace;
    arguments.workspace_bytes = workspace_bytes;
    return arguments;
  }

  std::shared_ptr<tessera_kernel> kernel;
  std::vector<std::int64_t> sizes;
  std::vector<double> scalars;
  std::vector<std::uint64_t> buffers;
  std::uint64_t workspace = 0;
  std::int64_t workspace_bytes = 0;
};
