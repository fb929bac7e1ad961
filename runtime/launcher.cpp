// The launch path. Two passes: prepare() evaluates and checks everything into one Frame on the stack, then the steps
// start; so a refusal leaves nothing half-done. Names became indices when the launcher was made; the lists are bounded
// by base/launch.h, so nothing is allocated. Messages are made out of line (launcher_refusals.h).
#include "runtime/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/tensor_map_resolve.h"
#include "runtime/launcher_refusals.h"

namespace tessera {

namespace {

constexpr int kWorkspace = -1;  // a pointer parameter's source

struct BoundRule {
  BoundExpression lhs, rhs;
  Relation relation = Relation::equal;
};

struct BoundParameter {
  ParameterKind kind = ParameterKind::i32;
  BoundExpression value;  // of an integer, or the offset of a pointer
  int source = 0;         // index of the tensor map, buffer or scalar
};

struct BoundStep {
  EntryHandle entry;
  std::array<BoundExpression, 3> grid;
  std::vector<BoundParameter> parameters;
};

/// Everything about one launch. Left uninitialised on purpose: only what the plan has is written and read.
struct Frame {
  std::int64_t sizes[kMaxSizes];
  float scalars[kMaxScalars];
  TensorMapObject maps[kMaxTensorMaps];
  std::uint32_t encoded;  // bit i: maps[i] is made
  std::uint32_t grids[kMaxSteps][3];
  bool is_skipped[kMaxSteps];
  std::uint64_t values[kMaxSteps][kMaxParameters];
  void* pointers[kMaxSteps][kMaxParameters];
  std::int64_t workspace_bytes;
};
static_assert(kMaxTensorMaps <= 32);

template <class List>
int index_of(const List& list, std::string_view name) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<int>(i);
  return -1;
}

template <class List>
int require_index(const List& list, std::string_view name, std::string_view what, const std::string& op) {
  const int index = index_of(list, name);
  if (index >= 0) return index;
  std::string known;
  for (const auto& item : list) known += fmt::format("{}{}", known.empty() ? "" : ", ", item.name);
  throw Error(ErrorKind::usage,
              fmt::format("{} has no {} '{}'; it has {}", op, what, name, known.empty() ? "none" : known));
}

bool holds(std::int64_t lhs, Relation relation, std::int64_t rhs) noexcept {
  switch (relation) {
    case Relation::at_least:
      return lhs >= rhs;
    case Relation::at_most:
      return lhs <= rhs;
    case Relation::equal:
      return lhs == rhs;
    case Relation::multiple_of:
      return rhs != 0 && (rhs == -1 || lhs % rhs == 0);
  }
  return false;
}

}  // namespace

struct Launcher::State {
  Device& device;
  LaunchPlan plan;
  std::unique_ptr<LoadedImage> image;
  TensorMapTarget target;
  std::vector<std::string> size_names;
  std::vector<BoundExpression> defaults;  // of sizes; unused where there is none
  int num_sms_slot = -1;
  std::vector<BoundRule> domain;
  std::vector<BoundTensorMap> maps;
  std::vector<int> map_buffers;
  BoundExpression workspace_bytes;
  std::vector<BoundStep> steps;

  State(Device& on, LaunchPlan launch_plan, const Image& code);
  void bind_step(const LaunchStep& step);
  void check_parameters(const LaunchStep& step, EntryHandle entry) const;

  std::span<const std::int64_t> fill_sizes(const LaunchArguments& arguments, Frame& frame) const;
  void check_domain(std::span<const std::int64_t> sizes) const;
  void check_buffers(const LaunchArguments& arguments, std::span<const std::int64_t> sizes) const;
  void fill_scalars(const LaunchArguments& arguments, Frame& frame) const;
  void check_workspace(const LaunchArguments& arguments, std::int64_t bytes) const;
  void prepare_map(std::size_t index, const LaunchArguments& arguments, std::span<const std::int64_t> sizes,
                   Frame& frame) const;
  void prepare_step(std::size_t index, const LaunchArguments& arguments, std::span<const std::int64_t> sizes,
                    Frame& frame) const;
  void prepare(const LaunchArguments& arguments, Frame& frame) const;
};

Launcher::State::State(Device& on, LaunchPlan launch_plan, const Image& code)
    : device(on), plan(std::move(launch_plan)) {
  check_launch_plan(plan);
  refuse_foreign_code(plan, device.info());
  target.compute_major = device.info().compute_major;
  for (const SizeSpec& size : plan.sizes) size_names.push_back(size.name);
  num_sms_slot = index_of(plan.sizes, "num_sms");
  const auto bind = [&](const Expression& expression) { return BoundExpression(expression, size_names); };
  for (const SizeSpec& size : plan.sizes)
    defaults.push_back(size.default_value ? bind(*size.default_value) : BoundExpression());
  for (const DomainRule& rule : plan.domain) domain.push_back({bind(rule.lhs), bind(rule.rhs), rule.relation});
  for (const TensorMapRecipe& recipe : plan.tensor_maps) {
    maps.emplace_back(recipe, size_names);
    map_buffers.push_back(index_of(plan.buffers, recipe.buffer));
  }
  workspace_bytes = bind(plan.workspace.bytes);
  image = device.load(code);
  for (const LaunchStep& step : plan.steps) bind_step(step);
}

void Launcher::State::bind_step(const LaunchStep& step) {
  BoundStep bound;
  bound.entry = image->entry(step.entry);
  check_parameters(step, bound.entry);
  // An entry may serve several steps: it must be allowed the most that any of them asks for.
  std::int64_t smem_bytes = 0;
  for (const LaunchStep& other : plan.steps)
    if (other.entry == step.entry) smem_bytes = std::max(smem_bytes, other.dynamic_smem_bytes);
  if (smem_bytes > device.info().max_dynamic_smem_bytes) refuse_smem(step, smem_bytes, device.info());
  if (smem_bytes > 0) image->set_max_dynamic_smem(bound.entry, smem_bytes);
  for (std::size_t i = 0; i < 3; ++i) bound.grid[i] = BoundExpression(step.grid[i], size_names);
  for (const KernelParameter& parameter : step.parameters) {
    BoundParameter result{parameter.kind, BoundExpression(parameter.value, size_names), 0};
    if (parameter.kind == ParameterKind::tensor_map) result.source = index_of(plan.tensor_maps, parameter.source);
    if (parameter.kind == ParameterKind::f32) result.source = index_of(plan.scalars, parameter.source);
    if (parameter.kind == ParameterKind::pointer) {
      result.source = parameter.source == "workspace" ? kWorkspace : index_of(plan.buffers, parameter.source);
      result.value = BoundExpression(parameter.offset_bytes, size_names);
    }
    bound.parameters.push_back(std::move(result));
  }
  steps.push_back(std::move(bound));
}

void Launcher::State::check_parameters(const LaunchStep& step, EntryHandle entry) const {
  const std::vector<ParameterLayout> found = image->parameters(entry);
  bool is_same = found.size() == step.parameters.size();
  for (std::size_t i = 0; is_same && i < found.size(); ++i)
    is_same = found[i].bytes == parameter_bytes(step.parameters[i].kind);
  if (!is_same) refuse_parameters(step, found);
}

std::span<const std::int64_t> Launcher::State::fill_sizes(const LaunchArguments& arguments, Frame& frame) const {
  const std::size_t count = plan.sizes.size();
  if (arguments.sizes.size() != count) refuse_count(plan, "sizes", arguments.sizes.size(), count);
  const std::span<const std::int64_t> sizes(frame.sizes, count);
  for (std::size_t i = 0; i < count; ++i) {
    const SizeSpec& spec = plan.sizes[i];
    std::int64_t value = arguments.sizes[i];
    if (value == kUseDefault) {
      if (static_cast<int>(i) == num_sms_slot)
        value = device.info().num_sms;
      else if (spec.default_value)
        value = defaults[i].evaluate(sizes);
      else
        refuse_missing_size(plan, spec);
    }
    if (value < spec.min || value > spec.max) refuse_size(plan, spec, value);
    frame.sizes[i] = value;
  }
  return sizes;
}

void Launcher::State::check_domain(std::span<const std::int64_t> sizes) const {
  for (std::size_t i = 0; i < domain.size(); ++i) {
    const std::int64_t lhs = domain[i].lhs.evaluate(sizes), rhs = domain[i].rhs.evaluate(sizes);
    if (!holds(lhs, domain[i].relation, rhs)) refuse_domain(plan, plan.domain[i], lhs, rhs);
  }
}

void Launcher::State::check_buffers(const LaunchArguments& arguments, std::span<const std::int64_t> sizes) const {
  if (arguments.buffers.size() != plan.buffers.size())
    refuse_count(plan, "buffers", arguments.buffers.size(), plan.buffers.size());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferSpec& spec = plan.buffers[i];
    const DevicePointer pointer = arguments.buffers[i];
    if (pointer == 0 && !spec.is_optional) check_null_buffer(plan, spec, size_names, sizes);
    if ((pointer & (static_cast<DevicePointer>(spec.alignment) - 1)) != 0)
      refuse_alignment(plan, spec.name, pointer, spec.alignment);
  }
}

void Launcher::State::fill_scalars(const LaunchArguments& arguments, Frame& frame) const {
  if (arguments.scalars.size() != plan.scalars.size())
    refuse_count(plan, "scalars", arguments.scalars.size(), plan.scalars.size());
  for (std::size_t i = 0; i < plan.scalars.size(); ++i) {
    double value = arguments.scalars[i];
    if (std::isnan(value)) {
      if (!plan.scalars[i].default_value) refuse_missing_scalar(plan, plan.scalars[i]);
      value = *plan.scalars[i].default_value;
    }
    frame.scalars[i] = static_cast<float>(value);
  }
}

void Launcher::State::check_workspace(const LaunchArguments& arguments, std::int64_t bytes) const {
  if (bytes <= 0) return;
  if (arguments.workspace == 0 || arguments.workspace_bytes < bytes) refuse_workspace(plan, arguments, bytes);
  if ((arguments.workspace & (static_cast<DevicePointer>(plan.workspace.alignment) - 1)) != 0)
    refuse_alignment(plan, "workspace", arguments.workspace, plan.workspace.alignment);
}

void Launcher::State::prepare_map(std::size_t index, const LaunchArguments& arguments,
                                  std::span<const std::int64_t> sizes, Frame& frame) const {
  const std::uint32_t bit = 1u << index;
  if ((frame.encoded & bit) != 0) return;
  const DevicePointer address = arguments.buffers[static_cast<std::size_t>(map_buffers[index])];
  const ResolvedTensorMap map = maps[index].resolve(sizes, address);
  if (first_broken_rule(map, target) != TensorMapRule::none) refuse_tensor_map(plan, map, maps[index].name(), target);
  device.encode(map, frame.maps[index]);
  frame.encoded |= bit;
}

void Launcher::State::prepare_step(std::size_t index, const LaunchArguments& arguments,
                                   std::span<const std::int64_t> sizes, Frame& frame) const {
  const BoundStep& step = steps[index];
  const LaunchStep& spec = plan.steps[index];
  frame.is_skipped[index] = false;
  for (std::size_t i = 0; i < 3; ++i) {
    constexpr std::int64_t kMaxGrid[3] = {INT32_MAX, 65535, 65535};
    const std::int64_t extent = step.grid[i].evaluate(sizes);
    if (extent < 0 || extent > kMaxGrid[i]) refuse_grid(plan, spec, i, extent, kMaxGrid[i]);
    if (extent % spec.cluster[i] != 0) refuse_cluster(plan, spec, i, extent);
    frame.grids[index][i] = static_cast<std::uint32_t>(extent);
    if (extent == 0) frame.is_skipped[index] = true;
  }
  if (frame.is_skipped[index]) return;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const BoundParameter& parameter = step.parameters[i];
    const auto source = static_cast<std::size_t>(parameter.source);
    std::uint64_t& value = frame.values[index][i];
    frame.pointers[index][i] = &value;
    switch (parameter.kind) {
      case ParameterKind::tensor_map:
        prepare_map(source, arguments, sizes, frame);
        frame.pointers[index][i] = &frame.maps[source];
        break;
      case ParameterKind::pointer: {
        const DevicePointer base = parameter.source == kWorkspace ? arguments.workspace : arguments.buffers[source];
        value = base == 0 ? 0 : base + static_cast<std::uint64_t>(parameter.value.evaluate(sizes));
        break;
      }
      case ParameterKind::i32: {
        const std::int64_t wide = parameter.value.evaluate(sizes);
        if (wide < INT32_MIN || wide > INT32_MAX) refuse_i32(plan, spec.parameters[i], wide);
        const auto narrow = static_cast<std::int32_t>(wide);
        std::memcpy(&value, &narrow, sizeof narrow);
        break;
      }
      case ParameterKind::i64:
        value = static_cast<std::uint64_t>(parameter.value.evaluate(sizes));
        break;
      case ParameterKind::f32:
        std::memcpy(&value, &frame.scalars[source], sizeof(float));
        break;
    }
  }
}

void Launcher::State::prepare(const LaunchArguments& arguments, Frame& frame) const {
  frame.encoded = 0;
  const std::span<const std::int64_t> sizes = fill_sizes(arguments, frame);
  check_domain(sizes);
  check_buffers(arguments, sizes);
  fill_scalars(arguments, frame);
  frame.workspace_bytes = workspace_bytes.evaluate(sizes);
  check_workspace(arguments, frame.workspace_bytes);
  for (std::size_t i = 0; i < steps.size(); ++i) prepare_step(i, arguments, sizes, frame);
}

Launcher::Launcher(Device& device, LaunchPlan plan, const Image& image)
    : state_(std::make_unique<State>(device, std::move(plan), image)) {}

Launcher::~Launcher() = default;

const LaunchPlan& Launcher::plan() const noexcept { return state_->plan; }

int Launcher::size_index(std::string_view name) const {
  return require_index(state_->plan.sizes, name, "size", state_->plan.op);
}
int Launcher::scalar_index(std::string_view name) const {
  return require_index(state_->plan.scalars, name, "scalar", state_->plan.op);
}
int Launcher::buffer_index(std::string_view name) const {
  return require_index(state_->plan.buffers, name, "buffer", state_->plan.op);
}

std::int64_t Launcher::workspace_bytes(const LaunchArguments& arguments) const {
  Frame frame;
  const std::span<const std::int64_t> sizes = state_->fill_sizes(arguments, frame);
  state_->check_domain(sizes);
  return std::max<std::int64_t>(0, state_->workspace_bytes.evaluate(sizes));
}

std::vector<std::int64_t> Launcher::resolve_sizes(const LaunchArguments& arguments) const {
  Frame frame;
  const std::span<const std::int64_t> sizes = state_->fill_sizes(arguments, frame);
  state_->check_domain(sizes);
  return {sizes.begin(), sizes.end()};
}

void Launcher::launch(Stream stream, const LaunchArguments& arguments) const {
  const State& state = *state_;
  Frame frame;
  state.prepare(arguments, frame);
  if (state.plan.workspace.zeroed && frame.workspace_bytes > 0)
    state.device.set_bytes(arguments.workspace, 0, static_cast<std::size_t>(frame.workspace_bytes), stream);
  for (std::size_t i = 0; i < state.steps.size(); ++i) {
    if (frame.is_skipped[i]) continue;
    const LaunchStep& spec = state.plan.steps[i];
    const LaunchRequest request{state.steps[i].entry,
                                {frame.grids[i][0], frame.grids[i][1], frame.grids[i][2]},
                                spec.block,
                                spec.cluster,
                                static_cast<std::uint32_t>(spec.dynamic_smem_bytes),
                                spec.programmatic_stream_serialization,
                                frame.pointers[i]};
    state.device.launch(request, stream);
  }
}

std::vector<std::pair<std::string, ResolvedTensorMap>> Launcher::resolve_tensor_maps(
    const LaunchArguments& arguments) const {
  const State& state = *state_;
  Frame frame;
  const std::span<const std::int64_t> sizes = state.fill_sizes(arguments, frame);
  state.check_domain(sizes);
  std::vector<std::pair<std::string, ResolvedTensorMap>> resolved;
  for (std::size_t i = 0; i < state.maps.size(); ++i) {
    const auto buffer = static_cast<std::size_t>(state.map_buffers[i]);
    const DevicePointer address = buffer < arguments.buffers.size() ? arguments.buffers[buffer] : 0;
    resolved.emplace_back(state.maps[i].name(), state.maps[i].resolve(sizes, address));
  }
  return resolved;
}

}  // namespace tessera
