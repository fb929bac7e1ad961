// Launches of any operator's kernels by the names of their plans, for programs that bench/peers/named_launch.py is for.
// Errors are returned as text, null when all is well.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/peers/shim_problem.h"
#include "tessera/guest_device.h"
#include "tessera/jit.h"

namespace {

using namespace tessera;

/// Sizes, scalars and buffers in the plan's order; what nobody names has its default, or is null.
struct Ordered {
  std::vector<std::int64_t> sizes;
  std::vector<double> scalars;
  std::vector<DevicePointer> buffers;
  DevicePointer workspace = 0;
  std::int64_t workspace_bytes = 0;

  LaunchArguments arguments() const { return {sizes, scalars, buffers, workspace, workspace_bytes}; }
};

template <class List>
std::ptrdiff_t place_of(const List& list, std::string_view name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
  return found == list.end() ? -1 : found - list.begin();
}

/// The values of scalars are the bits of a double.
Ordered ordered(const LaunchPlan& plan, const char* const* names, const std::int64_t* values, int count) {
  Ordered result;
  result.sizes.assign(plan.sizes.size(), kUseDefault);
  result.scalars.assign(plan.scalars.size(), std::numeric_limits<double>::quiet_NaN());
  result.buffers.assign(plan.buffers.size(), 0);
  for (int i = 0; i < count; ++i) {
    const std::string_view name = names[i];
    const auto bits = static_cast<std::uint64_t>(values[i]);
    if (name == "workspace") {
      result.workspace = bits;
    } else if (name == "workspace_bytes") {
      result.workspace_bytes = values[i];
    } else if (const std::ptrdiff_t size = place_of(plan.sizes, name); size >= 0) {
      result.sizes[static_cast<std::size_t>(size)] = values[i];
    } else if (const std::ptrdiff_t buffer = place_of(plan.buffers, name); buffer >= 0) {
      result.buffers[static_cast<std::size_t>(buffer)] = bits;
    } else if (const std::ptrdiff_t scalar = place_of(plan.scalars, name); scalar >= 0) {
      result.scalars[static_cast<std::size_t>(scalar)] = std::bit_cast<double>(bits);
    } else {
      throw Error(ErrorKind::usage, "the launch has no " + std::string(name));
    }
  }
  return result;
}

}  // namespace

extern "C" {

const char* tessera_bench_open(const char* op, const char* selectors, void** kernel, const char** name) {
  return bench::guarded([&] {
    auto opened = std::make_unique<std::shared_ptr<Kernel>>(bench::jit().kernel(bench::problem_of(op, selectors)));
    (*opened)->prepare(guest_device());
    *name = (*opened)->plan().kernel.c_str();
    *kernel = opened.release();
  });
}

const char* tessera_bench_workspace(void* kernel, const char* const* names, const std::int64_t* values, int count,
                                    std::int64_t* bytes) {
  return bench::guarded([&] {
    Kernel& of = **static_cast<std::shared_ptr<Kernel>*>(kernel);
    *bytes = of.launcher(guest_device()).workspace_bytes(ordered(of.plan().launch, names, values, count).arguments());
  });
}

/// stream is a CUstream.
const char* tessera_bench_launch(void* kernel, void* stream, const char* const* names, const std::int64_t* values,
                                 int count) {
  return bench::guarded([&] {
    Kernel& of = **static_cast<std::shared_ptr<Kernel>*>(kernel);
    of.launch(guest_device(), stream, ordered(of.plan().launch, names, values, count).arguments());
  });
}

void tessera_bench_close(void* kernel) { delete static_cast<std::shared_ptr<Kernel>*>(kernel); }
}
