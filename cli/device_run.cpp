// The order of things that keeps a check honest: poison and guards before the inputs are copied, a synchronisation
// before anything is read back, guards looked at on both sides of every buffer. Whatever throws on the way, device
// memory and events go with the objects that hold them.
#include "cli/device_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/strided.h"
#include "reference/poison.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::cli {

using reference::kPoisonByte;

DeviceRun::DeviceRun(Device& device, Kernel& kernel, std::vector<std::int64_t> sizes, std::vector<double> scalars,
                     const std::map<std::string, reference::Tensor>& inputs)
    : device_(device),
      emulated_(dynamic_cast<emulator::EmulatedDevice*>(&device)),
      kernel_(kernel),
      sizes_(std::move(sizes)),
      scalars_(std::move(scalars)) {
  const LaunchPlan& plan = kernel.plan().launch;
  const LaunchSizes launch(plan);
  const std::size_t guard = emulated_ == nullptr ? reference::kGuardBytes : 0;
  for (const BufferSpec& spec : plan.buffers) {
    std::vector<std::int64_t> shape, strides;
    for (const Expression& extent : spec.shape) shape.push_back(launch.evaluate(extent, sizes_));
    for (const Expression& stride : spec.strides) strides.push_back(launch.evaluate(stride, sizes_));
    const auto dtype = reference::dtype_from_name(spec.dtype);
    if (!dtype) throw Error(ErrorKind::unsupported, fmt::format("buffer {} has type {}", spec.name, spec.dtype));
    if (strides.size() != shape.size()) strides = reference::dense_strides(shape);
    // As many elements as a dense tensor has, in the order of one: strides of extents 0 and 1 do not count.
    const std::int64_t elements = strided_elements(spec.name, shape, strides);
    const bool is_dense = is_laid_out_densely(shape, strides);
    const std::size_t bytes = static_cast<std::size_t>(elements) * static_cast<std::size_t>(dtype_bytes(*dtype));
    buffers_.push_back({&spec, nullptr, std::move(shape), std::move(strides), is_dense, bytes, guard,
                        DeviceMemory(device_, bytes + 2 * guard)});
    const Buffer& buffer = buffers_.back();
    // As frameworks pass a tensor without elements.
    pointers_.push_back(bytes == 0 ? 0 : buffer.data());
    if (spec.role == BufferRole::output) continue;
    const auto input = inputs.find(spec.name);
    if (input == inputs.end() && spec.is_optional) {
      pointers_.back() = 0;
      continue;
    }
    if (input == inputs.end()) throw Error(ErrorKind::usage, fmt::format("input {} is missing", spec.name));
    if (input->second.shape != buffer.shape)
      throw Error(ErrorKind::usage, fmt::format("input {}: shape [{}] given, [{}] expected", spec.name,
                                                fmt::join(input->second.shape, ", "), fmt::join(buffer.shape, ", ")));
    buffers_.back().input = &input->second;
  }
  workspace_bytes_ = kernel_.launcher(device_).workspace_bytes(arguments());
  if (workspace_bytes_ > 0) {
    workspace_.emplace(device_, static_cast<std::size_t>(workspace_bytes_));
  }
  reset();
}

void DeviceRun::reset() {
  // What no step has written must not pass for a part of the result.
  if (workspace_) poison(workspace_->address(), static_cast<std::size_t>(workspace_bytes_));
  for (const Buffer& buffer : buffers_) fill(buffer);
  device_.synchronize();
}

void DeviceRun::poison(DevicePointer to, std::size_t bytes) {
  if (emulated_ != nullptr)
    emulated_->poison(to, kPoisonByte, bytes);
  else
    device_.set_bytes(to, kPoisonByte, bytes);
}

void DeviceRun::fill(const Buffer& buffer) {
  poison(buffer.base(), buffer.bytes + 2 * buffer.guard_bytes);
  if (buffer.input == nullptr) return;
  if (buffer.is_dense) {
    device_.copy_to_device(buffer.data(), buffer.input->bytes.data(), buffer.bytes);
    return;
  }
  const std::vector<std::byte> memory = spread(*buffer.input, buffer.strides);
  device_.copy_to_device(buffer.data(), memory.data(), memory.size());
  device_.synchronize();  // before the memory goes
  // The copy has written the gaps too; only a device that looks who wrote a byte makes a difference of it.
  if (emulated_ == nullptr) return;
  for_gaps(buffer.input->dtype, buffer.shape, buffer.strides,
           [&](std::size_t first, std::size_t bytes) { poison(buffer.data() + first, bytes); });
}

LaunchArguments DeviceRun::arguments() const {
  LaunchArguments arguments;
  arguments.sizes = sizes_;
  arguments.scalars = scalars_;
  arguments.buffers = pointers_;
  arguments.workspace = workspace_ ? workspace_->address() : 0;
  arguments.workspace_bytes = workspace_bytes_;
  return arguments;
}

void DeviceRun::launch() {
  if (kernel_.plan().launch.workspace.zeroed && workspace_)
    device_.set_bytes(workspace_->address(), 0, static_cast<std::size_t>(workspace_bytes_));
  kernel_.launch(device_, Stream{}, arguments());
}

std::map<std::string, reference::Tensor> DeviceRun::read_outputs(std::vector<std::string>& problems) {
  for (const Finding& finding : device_.synchronize())
    if (finding.is_failure) problems.push_back(finding.name + ": " + finding.message);
  std::map<std::string, reference::Tensor> outputs;
  for (const Buffer& buffer : buffers_) {
    if (buffer.guard_bytes != 0) check_guards(buffer, problems);
    if (buffer.spec->role == BufferRole::input) continue;
    outputs.emplace(buffer.spec->name, read_output(buffer, problems));
  }
  return outputs;
}

bool DeviceRun::is_added_to(const std::string& name) const {
  return std::any_of(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.spec->name == name && buffer.spec->role == BufferRole::in_out;
  });
}

void DeviceRun::check_guards(const Buffer& buffer, std::vector<std::string>& problems) {
  std::vector<std::byte> guard(buffer.guard_bytes);
  for (const bool is_before : {true, false}) {
    device_.copy_to_host(guard.data(), is_before ? buffer.base() : buffer.data() + buffer.bytes, guard.size());
    std::string problem = reference::guard_problem(buffer.spec->name, is_before ? "before" : "after", guard);
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
}

reference::Tensor DeviceRun::read_output(const Buffer& buffer, std::vector<std::string>& problems) {
  const DType dtype = *reference::dtype_from_name(buffer.spec->dtype);
  if (buffer.is_dense) {
    reference::Tensor tensor(dtype, buffer.shape);
    device_.copy_to_host(tensor.bytes.data(), buffer.data(), buffer.bytes);
    return tensor;
  }
  std::vector<std::byte> memory(buffer.bytes);
  device_.copy_to_host(memory.data(), buffer.data(), buffer.bytes);
  if (std::string problem = gap_problem(buffer.spec->name, memory, dtype, buffer.shape, buffer.strides);
      !problem.empty())
    problems.push_back(std::move(problem));
  return gather(memory, dtype, buffer.shape, buffer.strides);
}

double DeviceRun::time_us(int repeat) {
  const auto flush_bytes = static_cast<std::size_t>(std::max<std::int64_t>(2 * device_.info().l2_bytes, 1 << 20));
  const DeviceMemory flush(device_, flush_bytes);
  const DeviceEvent start(device_), stop(device_);
  std::vector<double> times;
  constexpr int kWarmups = 3;
  for (int i = 0; i < kWarmups + repeat; ++i) {
    device_.set_bytes(flush.address(), static_cast<std::uint8_t>(i), flush_bytes);
    device_.record(start.event(), {});
    launch();
    device_.record(stop.event(), {});
    const double microseconds = 1000 * device_.elapsed_ms(start.event(), stop.event());
    if (i >= kWarmups) times.push_back(microseconds);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace tessera::cli
