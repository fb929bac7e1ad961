#include "cli/emulate_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/bound_expression.h"
#include "base/npy.h"
#include "base/tensor_map_resolve.h"
#include "tessera/error.h"

namespace tessera::cli {

using Kind = FileParameter::Kind;

namespace {

constexpr std::uint8_t kPoison = 0xFF;  // NaN in every floating format of 8 bits and more
constexpr std::uint32_t kMaxGrid[] = {0x7FFFFFFF, 65535, 65535};

}  // namespace

EmulateRun::EmulateRun(LaunchFile file, std::string ptx, std::string ptx_name, const EmulateOptions& options)
    : file_(std::move(file)), ptx_(std::move(ptx)), ptx_name_(std::move(ptx_name)), options_(options) {
  for (const SizeSpec& size : file_.plan.sizes) names_.push_back(size.name);
  resolve_sizes();
  resolve_scalars();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < file_.plan.buffers.size(); ++i) make_buffer(i, total);
  const std::int64_t workspace = evaluate(file_.plan.workspace.bytes);
  if (workspace < 0 || static_cast<std::uint64_t>(workspace) > options_.max_buffer_bytes)
    throw Error(ErrorKind::usage, fmt::format("workspace = '{}' is {} bytes: must lie in 0..{}",
                                              file_.plan.workspace.bytes.text(), workspace, options_.max_buffer_bytes));
  workspace_bytes_ = static_cast<std::uint64_t>(workspace);
}

std::int64_t EmulateRun::evaluate(const Expression& expression) const {
  return BoundExpression(expression, names_).evaluate(sizes_);
}

void EmulateRun::resolve_sizes() {
  // Tensor maps are judged later, with their addresses.
  LaunchPlan plan = file_.plan;
  plan.tensor_maps.clear();
  const LaunchSizes launch(plan);
  std::vector<GivenSize> given;
  for (const auto& [name, value] : file_.sizes) given.push_back({name, value});
  if (index_of(plan.sizes, "num_sms") < plan.sizes.size() && !file_.sizes.contains("num_sms"))
    given.push_back({"num_sms", options_.num_sms});
  const auto sizes = launch.complete(given);
  if (!sizes) {
    std::vector<std::string> missing;
    for (const SizeSpec& size : plan.sizes)
      if (!size.default_value && !file_.sizes.contains(size.name)) missing.push_back(size.name);
    throw Error(ErrorKind::usage, fmt::format("no value for the size {0}: bind it in bindings.sizes or with --size "
                                              "{1}=N",
                                              fmt::join(missing, ", "), missing.empty() ? "NAME" : missing.front()));
  }
  sizes_ = *sizes;
  if (const auto problems = launch.problems(sizes_); !problems.empty())
    throw Error(ErrorKind::usage, problems.front(), {problems.begin() + 1, problems.end()});
}

void EmulateRun::resolve_scalars() {
  for (const ScalarSpec& scalar : file_.plan.scalars) {
    const auto bound = file_.scalars.find(scalar.name);
    if (bound == file_.scalars.end() && !scalar.default_value)
      throw Error(ErrorKind::usage, fmt::format("no value for the scalar {0}: bind it in bindings.scalars or with "
                                                "--scalar {0}=X",
                                                scalar.name));
    scalars_.push_back(bound != file_.scalars.end() ? bound->second : *scalar.default_value);
  }
}

DevicePointer EmulateRun::pointer_of(const std::string& name) const {
  if (name == "workspace") return workspace_;
  return buffers_[index_of(file_.plan.buffers, name)].pointer;
}

// Every map of the launch, checked by its rules with the addresses that it will have.
void EmulateRun::check_maps(const DeviceInfo& info) const {
  std::vector<std::string> broken;
  for (const TensorMapRecipe& recipe : file_.plan.tensor_maps) {
    const ResolvedTensorMap map = resolve(recipe, names_, sizes_, pointer_of(recipe.buffer));
    for (const TensorMapViolation& violation : broken_rules(map, recipe.name, {info.compute_major}))
      broken.push_back(violation.message);
  }
  if (!broken.empty()) {
    broken.emplace_back("(--skip-map-rules launches anyway)");
    throw Error(ErrorKind::usage, broken.front(), {broken.begin() + 1, broken.end()});
  }
}

TensorMapObject EmulateRun::encode(const std::string& name, emulator::EmulatedDevice& device) const {
  const TensorMapRecipe& recipe = file_.plan.tensor_maps[index_of(file_.plan.tensor_maps, name)];
  TensorMapObject object;
  device.encode(resolve(recipe, names_, sizes_, pointer_of(recipe.buffer)), object);
  return object;
}

void EmulateRun::upload(emulator::EmulatedDevice& device) {
  for (Buffer& buffer : buffers_) {
    if (buffer.is_null) continue;
    if (buffer.pointer == 0) buffer.pointer = device.allocate(buffer.bytes);
    if (buffer.initial.empty())
      device.poison(buffer.pointer, kPoison, buffer.bytes);
    else
      device.copy_to_device(buffer.pointer, buffer.initial.data(), buffer.initial.size());
  }
  if (workspace_bytes_ > 0) {
    if (workspace_ == 0) workspace_ = device.allocate(workspace_bytes_);
    if (file_.plan.workspace.zeroed)
      device.set_bytes(workspace_, 0, workspace_bytes_);
    else
      device.poison(workspace_, kPoison, workspace_bytes_);
  }
  if (options_.checks_map_rules) check_maps(device.info());
  for (const Buffer& buffer : buffers_)
    for (std::size_t i = 0; i < buffer.maps.size(); ++i) {
      const TensorMapObject object = encode(file_.plan.tensor_maps[buffer.maps[i]].name, device);
      device.copy_to_device(buffer.pointer + i * sizeof(object), &object, sizeof(object));
    }
}

void EmulateRun::write_parameter(const FileParameter& parameter, std::byte* to,
                                 emulator::EmulatedDevice& device) const {
  switch (parameter.kind) {
    case Kind::tensor_map: {
      const TensorMapObject object = encode(parameter.source, device);
      std::memcpy(to, &object, sizeof(object));
      return;
    }
    case Kind::pointer: {
      const DevicePointer base = pointer_of(parameter.source);
      const DevicePointer pointer = base + static_cast<DevicePointer>(evaluate(parameter.offset_bytes));
      std::memcpy(to, &pointer, sizeof(pointer));
      return;
    }
    case Kind::integer: {
      const std::int64_t value = evaluate(parameter.value);
      const int bits = static_cast<int>(parameter.bytes) * 8;
      // Signed or unsigned is the kernel's own affair: what fits either is taken.
      if (bits < 64 && (value < -(std::int64_t{1} << (bits - 1)) || value >= std::int64_t{1} << bits))
        throw Error(ErrorKind::usage, fmt::format("parameter {} = '{}' is {}: must fit {} bits", parameter.name,
                                                  parameter.value.text(), value, bits));
      std::memcpy(to, &value, parameter.bytes);
      return;
    }
    case Kind::floating: {
      const double value =
          parameter.source.empty() ? parameter.number : scalars_[index_of(file_.plan.scalars, parameter.source)];
      set_element(*find_element_type(parameter.word), to, 0, value);
      return;
    }
    case Kind::bytes:
      std::memcpy(to, parameter.raw.data(), parameter.raw.size());
      return;
    case Kind::structure:
      std::memset(to, 0, parameter.bytes);
      for (const FileParameter& field : parameter.fields) write_parameter(field, to + field.offset, device);
      return;
  }
}

// False: a dimension of the grid is 0 and the step is skipped.
bool EmulateRun::launch_step(emulator::EmulatedDevice& device, LoadedImage& image, std::size_t index) {
  const LaunchStep& step = file_.plan.steps[index];
  const std::vector<FileParameter>& parameters = file_.parameters[index];
  LaunchRequest request;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t extent = evaluate(step.grid[i]);
    if (extent == 0) return false;
    if (extent < 0 || extent > kMaxGrid[i])
      throw Error(ErrorKind::usage, fmt::format("launch.steps[{}].grid[{}] = '{}' is {}: must lie in 0..{}", index, i,
                                                step.grid[i].text(), extent, kMaxGrid[i]));
    request.grid[i] = static_cast<std::uint32_t>(extent);
  }
  request.entry = image.entry(step.entry);
  request.block = step.block;
  request.cluster = step.cluster;
  request.dynamic_smem_bytes = static_cast<std::uint32_t>(step.dynamic_smem_bytes);
  std::vector<std::size_t> wanted, given;
  for (const ParameterLayout& layout : image.parameters(request.entry)) wanted.push_back(layout.bytes);
  for (const FileParameter& parameter : parameters) given.push_back(parameter.bytes);
  if (wanted != given)
    throw Error(ErrorKind::usage,
                fmt::format("launch.steps[{}].parameters: {} given, '{}' takes {}", index,
                            given.empty() ? "none" : fmt::format("{} bytes", fmt::join(given, ", ")), step.entry,
                            wanted.empty() ? "none" : fmt::format("{}", fmt::join(wanted, ", "))));
  if (step.dynamic_smem_bytes > 0) image.set_max_dynamic_smem(request.entry, step.dynamic_smem_bytes);
  std::vector<std::vector<std::byte>> values;
  std::vector<void*> pointers;
  for (const FileParameter& parameter : parameters) {
    values.emplace_back(parameter.bytes);
    write_parameter(parameter, values.back().data(), device);
    pointers.push_back(values.back().data());
  }
  void* none = nullptr;
  request.parameters = pointers.empty() ? &none : pointers.data();
  device.launch(request, {});
  return true;
}

EmulateReport EmulateRun::run(emulator::EmulatedDevice& device, const std::vector<emulator::Schedule>& schedules) {
  EmulateReport report;
  std::vector<emulator::ScheduleClue> first_clues;
  for (const emulator::Schedule schedule : schedules) {
    device.set_schedule(schedule, options_.seed);
    const std::unique_ptr<LoadedImage> image = device.load_ptx(ptx_, ptx_name_);
    upload(device);
    std::uint64_t instructions = 0;
    double seconds = 0;
    for (std::size_t i = 0; i < file_.plan.steps.size() && !report.is_stopped; ++i) {
      if (!launch_step(device, *image, i)) continue;
      instructions += device.statistics().warp_instructions;
      seconds += device.statistics().seconds;
      report.is_stopped = merge_findings(report.findings, device.take_findings());
    }
    report.schedules.push_back({{"schedule", to_string(schedule)},
                                {"seed", options_.seed},
                                {"warp_instructions", instructions},
                                {"seconds", seconds}});
    add_threads(report.schedules.back(), device.statistics());
    if (report.is_stopped) break;
    report.outputs = OrderedJson::array();
    judge(device, to_string(schedule), report);
    std::vector<emulator::ScheduleClue> clues = device.take_clues();
    if (!report.problems.empty()) {
      if (report.schedules.size() > 1) merge_findings(report.findings, clues_to_difference(first_clues, clues));
      break;
    }
    if (report.schedules.size() == 1) first_clues = std::move(clues);
  }
  return report;
}

void refuse_other_code(std::string_view text, const std::string& name) {
  const auto refuse = [&](const char* what) {
    throw Error(
        ErrorKind::unsupported,
        fmt::format("{}: is {}; the emulator runs PTX: compile with `nvcc -ptx`, or take a cached kernel's with "
                    "`tessera cache show KEY --ptx`",
                    name, what));
  };
  if (text.starts_with("\x7f"
                       "ELF"))
    refuse("a cubin or an object file (ELF)");
  if (text.starts_with("\x50\xed\x55\xba")) refuse("a fat binary");
  if (text.starts_with("!<arch>")) refuse("an archive of object files");
  const std::string_view head = text.substr(0, 65536);
  if (head.find(".version") == std::string_view::npos &&
      (head.find("/*0000*/") != std::string_view::npos || head.find(".headerflags") != std::string_view::npos))
    refuse("a SASS listing");
}

std::string ptx_target(std::string_view text) {
  std::size_t at = text.find(".target");
  if (at == std::string_view::npos) return {};
  at = text.find_first_not_of(" \t", at + 7);
  if (at == std::string_view::npos) return {};
  return std::string(text.substr(at, text.find_first_of(" \t\r\n,;", at) - at));
}

}  // namespace tessera::cli
