// Kernels: names to indices, launches.
#include "c/handles.h"
#include "tessera/guest_device.h"
#include "tessera/internal/softcap.h"

namespace tessera::c {

namespace {

const LaunchPlan& launch_of(const tessera_kernel& kernel) { return kernel.kernel->plan().launch; }

/// Where a launch goes. Throws Error{usage} for a device of another jit, which may end before this kernel.
Device& device_for(const tessera_kernel& kernel, const tessera_device* device) {
  if (device == nullptr) return guest_device();
  if (device->shared != kernel.shared) [[unlikely]]
    throw Error(ErrorKind::usage,
                "device belongs to another jit than the kernel: open it with tessera_device_open() "
                "on the kernel's jit");
  return *device->device;
}

/// Calls with the arguments as the library has them, which live as long as the call.
template <class F>
void with_arguments(const tessera_arguments* arguments, const F& f) {
  require(arguments, "arguments");
  tessera_arguments full{};
  if (arguments->struct_size != sizeof(tessera_arguments)) [[unlikely]] {
    full = sized(arguments, "tessera_arguments");
    arguments = &full;
  }
  require_array(arguments->sizes, arguments->num_sizes, "sizes");
  require_array(arguments->scalars, arguments->num_scalars, "scalars");
  require_array(arguments->buffers, arguments->num_buffers, "buffers");
  f(LaunchArguments{.sizes = {arguments->sizes, arguments->num_sizes},
                    .scalars = {arguments->scalars, arguments->num_scalars},
                    .buffers = {arguments->buffers, arguments->num_buffers},
                    .workspace = arguments->workspace,
                    .workspace_bytes = arguments->workspace_bytes});
}
static_assert(TESSERA_USE_DEFAULT == kUseDefault);

template <class List>
const char* name_in(const List& list, std::size_t index) {
  return index < list.size() ? list[index].name.c_str() : nullptr;
}

template <class List>
std::size_t require_index(const List& list, std::string_view name, std::string_view what, const std::string& op) {
  std::string known;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name) return i;
    known += (known.empty() ? "" : ", ") + list[i].name;
  }
  throw Error(ErrorKind::usage, fmt::format("this kernel of {} has no {} '{}'; it has {}", op, what, name,
                                            known.empty() ? "none" : known));
}

}  // namespace

}  // namespace tessera::c

using namespace tessera;

void tessera_kernel_close(tessera_kernel* kernel) { delete kernel; }

const char* tessera_kernel_name(const tessera_kernel* kernel) {
  return kernel == nullptr ? nullptr : kernel->kernel->plan().kernel.c_str();
}

const char* tessera_kernel_plan(const tessera_kernel* kernel) {
  const char* text = nullptr;
  static_cast<void>(c::guarded([&] {
    c::require(kernel, "kernel");
    std::call_once(kernel->plan_once, [&] { kernel->plan = plan_json(kernel->kernel->plan()); });
    text = kernel->plan.c_str();
  }));
  return text;
}

size_t tessera_kernel_count(const tessera_kernel* kernel, int32_t kind) {
  if (kernel == nullptr) return 0;
  const LaunchPlan& plan = c::launch_of(*kernel);
  switch (kind) {
    case TESSERA_SIZE:
      return plan.sizes.size();
    case TESSERA_SCALAR:
      return plan.scalars.size();
    case TESSERA_BUFFER:
      return plan.buffers.size();
    default:
      return 0;
  }
}

const char* tessera_kernel_argument_name(const tessera_kernel* kernel, int32_t kind, size_t index) {
  if (kernel == nullptr) return nullptr;
  const LaunchPlan& plan = c::launch_of(*kernel);
  switch (kind) {
    case TESSERA_SIZE:
      return c::name_in(plan.sizes, index);
    case TESSERA_SCALAR:
      return c::name_in(plan.scalars, index);
    case TESSERA_BUFFER:
      return c::name_in(plan.buffers, index);
    default:
      return nullptr;
  }
}

tessera_status tessera_kernel_index(const tessera_kernel* kernel, int32_t kind, const char* name, size_t* index) {
  return c::guarded([&] {
    c::require(kernel, "kernel");
    c::require(name, "name");
    c::require(index, "index");
    const LaunchPlan& plan = c::launch_of(*kernel);
    switch (kind) {
      case TESSERA_SIZE:
        *index = c::require_index(plan.sizes, name, "size", plan.op);
        return;
      case TESSERA_SCALAR:
        *index = c::require_index(plan.scalars, name, "scalar", plan.op);
        return;
      case TESSERA_BUFFER:
        *index = c::require_index(plan.buffers, name, "buffer", plan.op);
        return;
      default:
        throw Error(ErrorKind::usage,
                    fmt::format("kind = {}: must be TESSERA_SIZE (0), TESSERA_SCALAR (1) or TESSERA_BUFFER (2)", kind));
    }
  });
}

tessera_status tessera_kernel_prepare(tessera_kernel* kernel, tessera_device* device) {
  return c::guarded([&] {
    c::require(kernel, "kernel");
    kernel->kernel->prepare(c::device_for(*kernel, device));
  });
}

tessera_status tessera_kernel_workspace_bytes(tessera_kernel* kernel, tessera_device* device,
                                              const tessera_arguments* arguments, int64_t* bytes) {
  return c::guarded([&] {
    c::require(kernel, "kernel");
    c::require(bytes, "bytes");
    c::with_arguments(arguments, [&](const LaunchArguments& given) {
      *bytes = kernel->kernel->launcher(c::device_for(*kernel, device)).workspace_bytes(given);
    });
  });
}

tessera_status tessera_kernel_launch(tessera_kernel* kernel, tessera_device* device, void* stream,
                                     const tessera_arguments* arguments) {
  return c::guarded([&] {
    c::require(kernel, "kernel");
    c::with_arguments(arguments, [&](const LaunchArguments& given) {
      const auto softcap = static_cast<std::size_t>(kernel->softcap);
      if (kernel->softcap >= 0 && softcap < given.scalars.size()) check_softcap(given.scalars[softcap]);
      kernel->kernel->launch(c::device_for(*kernel, device), Stream(stream), given);
    });
  });
}
