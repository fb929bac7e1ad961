#include "runtime/launch_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/assert.h"
#include "runtime/launcher_refusals.h"

namespace tessera {

namespace {

constexpr int kWorkspace = -1;  // a pointer parameter's source

template <class List>
int index_of(const List& list, std::string_view name) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<int>(i);
  return -1;
}

bool is_multiple(std::uint64_t pointer, int power_of_two) noexcept {
  return (pointer & (static_cast<std::uint64_t>(power_of_two) - 1)) == 0;
}

}  // namespace

LaunchProgram::LaunchProgram(const LaunchPlan& plan, const DeviceInfo& info)
    : plan_(plan), num_sms_(info.num_sms), rules_(plan), num_values_(plan.sizes.size()) {
  target_.compute_major = info.compute_major;
  workspace_bytes_ = bind(plan.workspace.bytes, common_phase_);
  for (const LaunchStep& step : plan.steps) {
    steps_.emplace_back();
    for (std::size_t i = 0; i < 3; ++i) steps_.back().grid[i] = bind(step.grid[i], common_phase_);
  }
  for (const TensorMapRecipe& recipe : plan.tensor_maps) bind_map(recipe, target_);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) bind_step(plan.steps[i]);
  values_of_texts_.clear();
  std::vector<std::size_t> buffers_of_maps;
  for (const Map& map : maps_) buffers_of_maps.push_back(map.buffer);
  memo_.emplace(plan, num_values_, std::move(buffers_of_maps));
}

/// The place of the expression's value, which `phase` computes unless the earlier one does.
std::size_t LaunchProgram::bind(const Expression& expression, Phase& phase, const Phase* earlier) {
  const std::size_t size = rules_.index_of(expression.text());
  if (size < plan_.sizes.size()) return size;
  const auto [place, is_new] = values_of_texts_.try_emplace(expression.text(), num_values_);
  if (is_new) ++num_values_;
  TESSERA_ASSERT(num_values_ <= kMaxValues, std::to_string(num_values_));
  const std::size_t value = place->second;
  const auto computes = [value](const Phase& other) {
    return std::any_of(other.begin(), other.end(), [value](const Evaluation& e) { return e.value == value; });
  };
  if (!computes(phase) && (earlier == nullptr || !computes(*earlier)))
    phase.push_back({BoundExpression(expression, rules_.names()), value});
  return value;
}

/// The places of dims and strides; the steps that use the map compute them.
void LaunchProgram::bind_map(const TensorMapRecipe& recipe, TensorMapTarget target) {
  Map map;
  Phase unused;
  map.bound = BoundTensorMap(recipe, rules_.names());
  map.buffer = static_cast<std::size_t>(index_of(plan_.buffers, recipe.buffer));
  for (const Expression& extent : plan_.buffers[map.buffer].shape) map.extents.emplace_back(extent, rules_.names());
  map.fixed.type = recipe.type;
  map.fixed.rank = static_cast<std::uint32_t>(recipe.dims.size());
  map.fixed.interleave = recipe.interleave;
  map.fixed.swizzle = recipe.swizzle;
  map.fixed.l2_promotion = recipe.l2_promotion;
  map.fixed.fill = recipe.fill;
  for (std::size_t i = 0; i < recipe.dims.size(); ++i) {
    map.dims[i] = bind(recipe.dims[i], unused);
    map.fixed.dims[i] = 1;
    map.fixed.box[i] = recipe.box[i];
    map.fixed.element_strides[i] = recipe.element_strides[i];
  }
  for (std::size_t i = 0; i < recipe.strides_bytes.size(); ++i) map.strides[i] = bind(recipe.strides_bytes[i], unused);
  map.alignment_mask = static_cast<std::uint64_t>(tensor_map_alignment(recipe.type, recipe.interleave)) - 1;
  map.is_fixed_legal = !is_packed(recipe.type) && first_broken_rule(map.fixed, target) == TensorMapRule::none;
  maps_.push_back(std::move(map));
}

void LaunchProgram::bind_step(const LaunchStep& step) {
  Step& bound = steps_[static_cast<std::size_t>(&step - plan_.steps.data())];
  const auto bind_here = [&](const Expression& expression) { return bind(expression, bound.phase, &common_phase_); };
  for (const KernelParameter& parameter : step.parameters) {
    Parameter result{parameter.kind, 0, 0};
    switch (parameter.kind) {
      case ParameterKind::i32:
      case ParameterKind::i64:
        result.value = bind_here(parameter.value);
        break;
      case ParameterKind::pointer:
        result.source = parameter.source == "workspace" ? kWorkspace : index_of(plan_.buffers, parameter.source);
        result.value = bind_here(parameter.offset_bytes);
        break;
      case ParameterKind::f32:
        result.source = index_of(plan_.scalars, parameter.source);
        break;
      case ParameterKind::tensor_map: {
        result.source = index_of(plan_.tensor_maps, parameter.source);
        const TensorMapRecipe& recipe = plan_.tensor_maps[static_cast<std::size_t>(result.source)];
        for (const Expression& dim : recipe.dims) bind_here(dim);
        for (const Expression& stride : recipe.strides_bytes) bind_here(stride);
        break;
      }
    }
    bound.parameters.push_back(result);
  }
}

void LaunchProgram::run(const Phase& phase, LaunchFrame& frame) const {
  for (const Evaluation& evaluation : phase)
    frame.values[evaluation.value] = evaluation.expression.evaluate(sizes(frame));
}

void LaunchProgram::prepare_sizes(const LaunchArguments& arguments, LaunchFrame& frame) const {
  const std::size_t count = plan_.sizes.size();
  if (arguments.sizes.size() != count) refuse_count(plan_, "sizes", arguments.sizes.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const SizeSpec& spec = plan_.sizes[i];
    std::int64_t value = arguments.sizes[i];
    if (value == kUseDefault) {
      if (spec.name == "num_sms")
        value = num_sms_;
      else if (spec.default_value)
        value = rules_.default_of(i, sizes(frame));
      else
        refuse_missing_size(plan_, spec);
    }
    if (!rules_.is_in_range(i, value)) refuse_size(plan_, spec, value);
    frame.values[i] = value;
  }
  for (std::size_t i = 0; i < plan_.domain.size(); ++i) {
    const SizeRules::Sides sides = rules_.sides(i, sizes(frame));
    if (!sides.holds) refuse_domain(plan_, plan_.domain[i], sides.lhs, sides.rhs);
  }
  for (std::size_t i = 0; i < rules_.outputs().size(); ++i)
    if (const std::optional<SizeRules::Overlap> overlap = rules_.overlap(i, sizes(frame)))
      refuse_overlap(plan_, plan_.buffers[rules_.outputs()[i]], overlap->strides, overlap->places);
}

void LaunchProgram::check_buffers(const LaunchArguments& arguments, const LaunchFrame& frame) const {
  if (arguments.buffers.size() != plan_.buffers.size())
    refuse_count(plan_, "buffers", arguments.buffers.size(), plan_.buffers.size());
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    const BufferSpec& spec = plan_.buffers[i];
    const DevicePointer pointer = arguments.buffers[i];
    if (pointer == 0 && !spec.is_optional) check_null_buffer(plan_, spec, rules_.names(), sizes(frame));
    if (!is_multiple(pointer, spec.alignment)) refuse_alignment(plan_, spec.name, pointer, spec.alignment);
  }
}

void LaunchProgram::fill_scalars(const LaunchArguments& arguments, LaunchFrame& frame) const {
  if (arguments.scalars.size() != plan_.scalars.size())
    refuse_count(plan_, "scalars", arguments.scalars.size(), plan_.scalars.size());
  for (std::size_t i = 0; i < plan_.scalars.size(); ++i) {
    double value = arguments.scalars[i];
    if (std::isnan(value)) {
      if (!plan_.scalars[i].default_value) refuse_missing_scalar(plan_, plan_.scalars[i]);
      value = *plan_.scalars[i].default_value;
    }
    if (!(std::abs(value) <= std::numeric_limits<float>::max())) refuse_scalar(plan_, plan_.scalars[i], value);
    frame.scalars[i] = static_cast<float>(value);
  }
}

void LaunchProgram::check_workspace(const LaunchArguments& arguments, std::int64_t bytes) const {
  if (bytes <= 0) return;
  if (arguments.workspace == 0 || arguments.workspace_bytes < bytes) refuse_workspace(plan_, arguments, bytes);
  if (!is_multiple(arguments.workspace, plan_.workspace.alignment))
    refuse_alignment(plan_, "workspace", arguments.workspace, plan_.workspace.alignment);
}

void LaunchProgram::prepare_grid(std::size_t index, LaunchFrame& frame) const {
  constexpr std::int64_t kMaxGrid[3] = {INT32_MAX, 65535, 65535};
  const LaunchStep& spec = plan_.steps[index];
  frame.is_skipped[index] = false;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t extent = frame.values[steps_[index].grid[i]];
    if (extent < 0 || extent > kMaxGrid[i]) refuse_grid(plan_, spec, i, extent, kMaxGrid[i]);
    const auto narrow = static_cast<std::uint32_t>(extent);
    if (spec.cluster[i] > 1 && narrow % spec.cluster[i] != 0) refuse_cluster(plan_, spec, i, extent);
    frame.grids[index][i] = narrow;
    if (extent == 0) frame.is_skipped[index] = true;
  }
}

bool LaunchProgram::has_elements(const Map& map, const LaunchFrame& frame) const {
  return std::all_of(map.extents.begin(), map.extents.end(),
                     [&](const BoundExpression& extent) { return extent.evaluate(sizes(frame)) != 0; });
}

/// An address of memory that the launch has.
DevicePointer LaunchProgram::stand_in(const LaunchArguments& arguments, const LaunchFrame& frame) const {
  for (const Map& map : maps_) {
    const DevicePointer address = arguments.buffers[map.buffer];
    if (address != 0 && has_elements(map, frame)) return address;
  }
  return 0;
}

void LaunchProgram::prepare_map(std::size_t index, const LaunchArguments& arguments, Device& device,
                                LaunchFrame& frame) const {
  const std::uint32_t bit = 1u << index;
  if ((frame.encoded & bit) != 0) return;
  const Map& map = maps_[index];
  ResolvedTensorMap resolved = map.fixed;
  resolved.address = arguments.buffers[map.buffer];
  // Boxes of a tensor without elements lie outside of it and are zeros, but TMA translates the map's address all the
  // same: null ends the context. The map of this launch alone gets another operand's.
  const bool is_empty = !has_elements(map, frame);
  if (is_empty)
    if (const DevicePointer address = stand_in(arguments, frame); is_multiple(address, 16)) resolved.address = address;
  std::int64_t all = 0;  // negative when any of them is
  for (std::size_t i = 0; i < resolved.rank; ++i) {
    all |= frame.values[map.dims[i]];
    resolved.dims[i] = static_cast<std::uint64_t>(frame.values[map.dims[i]]);
  }
  for (std::size_t i = 0; i + 1 < resolved.rank; ++i) {
    all |= frame.values[map.strides[i]];
    resolved.strides_bytes[i] = static_cast<std::uint64_t>(frame.values[map.strides[i]]);
  }
  if (all < 0) map.bound.resolve(sizes(frame), resolved.address);  // which throws, and says which
  const bool is_legal = (map.is_fixed_legal && are_numbers_legal(resolved, map.alignment_mask)) ||
                        first_broken_rule(resolved, target_) == TensorMapRule::none;
  if (!is_legal) refuse_tensor_map(plan_, resolved, map.bound.name(), target_);
  device.encode(resolved, frame.maps[index]);
  if (!is_empty) frame.encoded |= bit;
}

void LaunchProgram::fill_parameters(std::size_t index, const LaunchArguments& arguments, Device& device,
                                    LaunchFrame& frame) const {
  const Step& step = steps_[index];
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const Parameter& parameter = step.parameters[i];
    const auto source = static_cast<std::size_t>(parameter.source);
    const auto number = [&] { return frame.values[parameter.value]; };
    std::uint64_t& value = frame.parameters[index][i];
    frame.pointers[index][i] = &value;
    switch (parameter.kind) {
      case ParameterKind::tensor_map:
        prepare_map(source, arguments, device, frame);
        frame.pointers[index][i] = &frame.maps[source];
        break;
      case ParameterKind::pointer: {
        const DevicePointer base = parameter.source == kWorkspace ? arguments.workspace : arguments.buffers[source];
        value = base == 0 ? 0 : base + static_cast<std::uint64_t>(number());
        break;
      }
      case ParameterKind::i32: {
        const std::int64_t wide = number();
        if (wide < INT32_MIN || wide > INT32_MAX) refuse_i32(plan_, plan_.steps[index].parameters[i], wide);
        const auto narrow = static_cast<std::int32_t>(wide);
        std::memcpy(&value, &narrow, sizeof narrow);
        break;
      }
      case ParameterKind::i64:
        value = static_cast<std::uint64_t>(number());
        break;
      case ParameterKind::f32:
        std::memcpy(&value, &frame.scalars[source], sizeof(float));
        break;
    }
  }
}

void LaunchProgram::prepare_steps(const LaunchArguments& arguments, Device& device, bool is_recalled,
                                  LaunchFrame& frame) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!is_recalled) prepare_grid(i, frame);
    if (frame.is_skipped[i]) continue;
    if (!is_recalled) run(steps_[i].phase, frame);
    fill_parameters(i, arguments, device, frame);
  }
}

void LaunchProgram::prepare(const LaunchArguments& arguments, Device& device, LaunchFrame& frame) const {
  const bool is_recalled = memo_->recall(arguments, frame);
  const std::uint32_t recalled_maps = is_recalled ? frame.encoded : 0;
  if (!is_recalled) {
    frame.encoded = 0;
    prepare_sizes(arguments, frame);
  }
  check_buffers(arguments, frame);
  fill_scalars(arguments, frame);
  if (!is_recalled) {
    run(common_phase_, frame);
    frame.workspace_bytes = frame.values[workspace_bytes_];
  }
  check_workspace(arguments, frame.workspace_bytes);
  prepare_steps(arguments, device, is_recalled, frame);
  if (!is_recalled || frame.encoded != recalled_maps) memo_->keep(arguments, frame, is_recalled);
}

std::int64_t LaunchProgram::workspace_bytes(const LaunchFrame& frame) const {
  return rules_.evaluate(plan_.workspace.bytes, sizes(frame));
}

std::vector<std::pair<std::string, ResolvedTensorMap>> LaunchProgram::resolve_maps(const LaunchArguments& arguments,
                                                                                   const LaunchFrame& frame) const {
  std::vector<std::pair<std::string, ResolvedTensorMap>> resolved;
  for (const Map& map : maps_) {
    const DevicePointer address = map.buffer < arguments.buffers.size() ? arguments.buffers[map.buffer] : 0;
    resolved.emplace_back(map.bound.name(), map.bound.resolve(sizes(frame), address));
  }
  return resolved;
}

}  // namespace tessera
