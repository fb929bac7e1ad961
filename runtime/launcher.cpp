// The launch path has two halves: the program (launch_program.h) evaluates and checks everything into one frame on the
// stack, then the steps start; so a refusal leaves nothing half-done. Messages are made out of line
// (launcher_refusals.h).
#include "tessera/launcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/launch_program.h"
#include "runtime/launcher_refusals.h"
#include "runtime/pointer_check.h"
#include "tessera/error.h"

namespace tessera {

namespace {

template <class List>
int require_index(const List& list, std::string_view name, std::string_view what, const std::string& op) {
  std::string known;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name) return static_cast<int>(i);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", list[i].name);
  }
  throw Error(ErrorKind::usage,
              fmt::format("{} has no {} '{}'; it has {}", op, what, name, known.empty() ? "none" : known));
}

LaunchPlan checked(LaunchPlan plan, const DeviceInfo& info) {
  check_launch_plan(plan);
  refuse_foreign_code(plan, info);
  return plan;
}

}  // namespace

struct Launcher::State {
  Device& device;
  const LaunchPlan plan;
  const LaunchProgram program;
  std::unique_ptr<LoadedImage> image;
  std::vector<EntryHandle> entries;  // one for each step
  PointerProbe* const probe;         // null: pointers are taken as they are

  State(Device& on, LaunchPlan launch_plan, const Image& code, LauncherOptions options)
      : device(on),
        plan(checked(std::move(launch_plan), on.info())),
        program(plan, on.info()),
        image(on.load(code)),
        probe(options.check_pointers ? dynamic_cast<PointerProbe*>(&on) : nullptr) {
    for (const LaunchStep& step : plan.steps) entries.push_back(open_entry(step));
  }

  EntryHandle open_entry(const LaunchStep& step) const {
    const EntryHandle entry = image->entry(step.entry);
    const std::vector<ParameterLayout> found = image->parameters(entry);
    bool is_same = found.size() == step.parameters.size();
    for (std::size_t i = 0; is_same && i < found.size(); ++i)
      is_same = found[i].bytes == parameter_bytes(step.parameters[i].kind);
    if (!is_same) refuse_parameters(step, found);
    // An entry may serve several steps: it must be allowed the most that any of them asks for.
    std::int64_t smem_bytes = 0;
    for (const LaunchStep& other : plan.steps)
      if (other.entry == step.entry) smem_bytes = std::max(smem_bytes, other.dynamic_smem_bytes);
    if (smem_bytes > device.info().max_dynamic_smem_bytes) refuse_smem(step, smem_bytes, device.info());
    if (smem_bytes > 0) image->set_max_dynamic_smem(entry, smem_bytes);
    return entry;
  }
};

Launcher::Launcher(Device& device, LaunchPlan plan, const Image& image, LauncherOptions options)
    : state_(std::make_unique<State>(device, std::move(plan), image, options)) {}

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
  LaunchFrame frame;
  state_->program.prepare_sizes(arguments, frame);
  return std::max<std::int64_t>(0, state_->program.workspace_bytes(frame));
}

std::vector<std::int64_t> Launcher::resolve_sizes(const LaunchArguments& arguments) const {
  LaunchFrame frame;
  state_->program.prepare_sizes(arguments, frame);
  return {frame.values, frame.values + state_->plan.sizes.size()};
}

void Launcher::launch(Stream stream, const LaunchArguments& arguments) const {
  const State& state = *state_;
  LaunchFrame frame;
  state.program.prepare(arguments, state.device, frame);
  if (state.probe != nullptr)
    check_pointers(state.plan, arguments, {frame.values, state.plan.sizes.size()}, frame.workspace_bytes, *state.probe);
  if (state.plan.workspace.zeroed && frame.workspace_bytes > 0)
    state.device.set_bytes(arguments.workspace, 0, static_cast<std::size_t>(frame.workspace_bytes), stream);
  for (std::size_t i = 0; i < state.entries.size(); ++i) {
    if (frame.is_skipped[i]) continue;
    const LaunchStep& spec = state.plan.steps[i];
    const LaunchRequest request{state.entries[i],
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
  LaunchFrame frame;
  state_->program.prepare_sizes(arguments, frame);
  return state_->program.resolve_maps(arguments, frame);
}

}  // namespace tessera
