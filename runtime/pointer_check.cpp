#include "runtime/pointer_check.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/bound_expression.h"
#include "base/npy.h"
#include "tessera/error.h"

namespace tessera {
namespace {

/// Bytes from the first to the last of the buffer's elements, that one included; 0: it has none.
std::int64_t bytes_of(const BufferSpec& spec, const std::vector<std::string>& names,
                      std::span<const std::int64_t> sizes) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    const std::int64_t extent = BoundExpression(spec.shape[i], names).evaluate(sizes);
    if (extent <= 0) return 0;
    if (extent > 1) last += (extent - 1) * BoundExpression(spec.strides[i], names).evaluate(sizes);
  }
  const std::size_t element = npy_element_bytes(npy_descr_of(spec.dtype));
  return (last + 1) * static_cast<std::int64_t>(element == 0 ? 1 : element);
}

void check(const LaunchPlan& plan, const std::string& name, DevicePointer pointer, std::int64_t bytes,
           PointerProbe& probe) {
  if (pointer == 0 || bytes <= 0) return;
  if (const std::string why = probe.why_unusable(pointer); !why.empty())
    throw Error(ErrorKind::usage, fmt::format("{}: buffer '{}' at {:#x}: {}", plan.op, name, pointer, why));
  const DevicePointer last = pointer + static_cast<DevicePointer>(bytes) - 1;
  if (const std::string why = probe.why_unusable(last); !why.empty())
    throw Error(ErrorKind::usage, fmt::format("{}: buffer '{}' at {:#x}, the last of its {} bytes at {:#x}: {}",
                                              plan.op, name, pointer, bytes, last, why));
}

}  // namespace

void check_pointers(const LaunchPlan& plan, const LaunchArguments& arguments, std::span<const std::int64_t> sizes,
                    std::int64_t workspace_bytes, PointerProbe& probe) {
  std::vector<std::string> names;
  for (const SizeSpec& size : plan.sizes) names.push_back(size.name);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i)
    check(plan, plan.buffers[i].name, arguments.buffers[i], bytes_of(plan.buffers[i], names, sizes), probe);
  check(plan, "workspace", arguments.workspace, workspace_bytes, probe);
}

}  // namespace tessera
