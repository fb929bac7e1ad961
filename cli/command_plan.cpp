// tessera plan: what would be compiled and launched, and why. Pure: no compiler, no cache, no GPU; with --time the
// kernel is compiled, and its time on a described GPU predicted.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "cli/json_stream.h"
#include "cli/planned_list.h"
#include "cli/predicted_time.h"
#include "cli/size_flags.h"
#include "emulator/time/report.h"
#include "generator/plan_json.h"
#include "tessera/error.h"
#include "tessera/internal/parallel.h"
#include "tessera/targets.h"

namespace tessera::cli {

namespace {

/// "12.0, not on 12.1, where sm_120f's does": of devices of the family that do not load a target's code.
std::string where_it_loads(Arch target) {
  const std::string_view own = loads_on(target);
  for (const std::string_view wider : targets_instead_of(target))
    if (const std::string_view all = loads_on(Arch::parse(wider)); all.size() > own.size())
      return fmt::format("{} alone; code for {} on {}", own, wider, all);
  return std::string(own);
}

/// How far such predictions were off.
std::string spread_text(const emulator::GpuTime& gpu) {
  const emulator::PredictionError error = emulator::error_of(gpu);
  if (error.source.empty()) return "not measured; no prediction for it has been compared with a clock";
  return fmt::format("not measured; median error of predictions {:g} %", error.median_percent);
}

void append_config(std::string& out, const Plan& plan) {
  out += fmt::format("{}\n  operator  {}, {} (loads on compute capability {})\n  why       {}\n", plan.kernel, plan.op,
                     plan.arch.to_string(), where_it_loads(plan.arch), plan.reason);
  if (const auto gpu = gpu_of_choices(plan.arch))
    out += fmt::format("  chosen    as predicted for the {}, {} (docs/time.md)\n", emulator::name_of(*gpu),
                       spread_text(*gpu));
  std::vector<std::string> fields;
  for (const ConfigField& field : plan.fields) fields.push_back(fmt::format("{} {}", field.name, field.value));
  out += fmt::format("  config    {}\n", fmt::join(fields, ", "));
  if (std::any_of(plan.fields.begin(), plan.fields.end(),
                  [](const ConfigField& field) { return field.name == "swap_ab" && field.value == "on"; }))
    out += "            (swapped: a, m and what belongs to them are b and n of the product, and the other way round)\n";
  if (!plan.mma_kind.empty()) out += fmt::format("  mma       {}\n", plan.mma_kind);
  out += "\noperands\n";
  for (const OperandPlan& operand : plan.operands)
    out += fmt::format("  {:<8} {:<5} {:<30} {}\n", operand.name, operand.dtype,
                       operand.tensor_map_type.empty()
                           ? "no tensor map"
                           : fmt::format("tensor map {}, swizzle {}", operand.tensor_map_type, operand.swizzle),
                       operand.scale_type.empty()
                           ? operand.use
                           : fmt::format("{}; {} scales, one for {} along k, {}", operand.use, operand.scale_type,
                                         operand.scale_block, operand.scale_form));
}

void append_resources(std::string& out, const Plan& plan) {
  out += fmt::format("\nshared memory: {} bytes{}\n", grouped(plan.smem_bytes),
                     plan.smem_bytes > 0 ? fmt::format(" of {}", grouped(smem_bytes_of(plan.arch))) : "");
  for (const SmemRegion& region : plan.smem)
    out += fmt::format("  {:>8} .. {:>8}  {:>8}  {}\n", region.offset, region.offset + region.bytes, region.bytes,
                       region.name);
  if (plan.tmem_columns > 0) {
    int used = 0;
    for (const TmemRegion& region : plan.tmem) used = std::max(used, region.first_column + region.columns);
    out += fmt::format("\nTensor Memory: {} of 512 columns of 128 lanes, {} allocated\n", used, plan.tmem_columns);
    for (const TmemRegion& region : plan.tmem)
      out += fmt::format("  {:>8} .. {:>8}  {:>8}  {}\n", region.first_column, region.first_column + region.columns,
                         region.columns, region.name);
  }
  // Where roles move registers a thread has another number at first: all that the launch bounds leave.
  const bool moves_registers = std::any_of(plan.roles.begin(), plan.roles.end(), [&](const RolePlan& role) {
    return role.registers > 0 && role.registers != plan.entry_registers;
  });
  if (moves_registers)
    out += fmt::format("\nroles: launched with {} registers a thread\n", plan.entry_registers);
  else if (!plan.roles.empty())
    out += "\nroles\n";
  for (const RolePlan& role : plan.roles) {
    const std::string warps = role.warps == 1
                                  ? fmt::format("warp {}", role.first_warp)
                                  : fmt::format("warps {}..{}", role.first_warp, role.first_warp + role.warps - 1);
    out += fmt::format("  {:<14} {}{}\n", warps, role.name,
                       role.registers > 0       ? fmt::format(", {} registers a thread", role.registers)
                       : plan.max_registers > 0 ? fmt::format(", at most {} registers a thread", plan.max_registers)
                                                : "");
  }
}

bool has_workspace(const Plan& plan) { return plan.launch.workspace.bytes.text() != "0"; }

void append_launch(std::string& out, const Plan& plan) {
  const std::vector<LaunchStep>& steps = plan.launch.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LaunchStep& step = steps[i];
    out += fmt::format("\nlaunch {}{}\n  grid     {}, {}, {}\n  block    {}, {}, {}\n",
                       steps.size() == 1 ? "" : fmt::format("{} of {}: ", i + 1, steps.size()), step.entry,
                       step.grid[0].text(), step.grid[1].text(), step.grid[2].text(), step.block[0], step.block[1],
                       step.block[2]);
    if (step.cluster[0] * step.cluster[1] * step.cluster[2] > 1)
      out += fmt::format("  cluster  {}, {}, {}\n", step.cluster[0], step.cluster[1], step.cluster[2]);
    out += fmt::format("  dynamic shared memory {} bytes\n  parameters", grouped(step.dynamic_smem_bytes));
    for (const KernelParameter& parameter : step.parameters)
      out += fmt::format(" {} ({})", parameter.name, to_string(parameter.kind));
    out += "\n";
  }
  const Workspace& workspace = plan.launch.workspace;
  if (has_workspace(plan))
    out += fmt::format("\nworkspace\n  bytes    {}\n  aligned to {} bytes, {}\n", workspace.bytes.text(),
                       workspace.alignment, workspace.zeroed ? "zeroed before every launch" : "any contents");
  out += "\ndomain\n";
  for (const DomainRule& rule : plan.launch.domain) out += fmt::format("  {}\n", rule.message);
}

void append_recipes(std::string& out, const Plan& plan) {
  out += "\ntensor maps\n";
  for (const TensorMapRecipe& map : plan.launch.tensor_maps) {
    std::vector<std::string> dims, strides;
    for (const Expression& dim : map.dims) dims.push_back(dim.text());
    for (const Expression& stride : map.strides_bytes) strides.push_back(stride.text());
    out += fmt::format(
        "  {}: {}, rank {}, swizzle {}, L2 promotion {}, fill {}\n    dims    {}\n    strides {} (bytes)\n"
        "    box     {}\n",
        map.name, to_string(map.type), map.dims.size(), to_string(map.swizzle), to_string(map.l2_promotion),
        to_string(map.fill), fmt::join(dims, ", "), fmt::join(strides, ", "), fmt::join(map.box, ", "));
  }
}

// The maps and the launch under the sizes that were given, as far as these go.
struct Checked {
  bool is_checked = false;  // any size was given
  KnownSizes sizes;
  std::vector<std::string> problems;
};

Checked check_sizes(const Plan& plan, const Problem& problem, const SizeFlags& flags) {
  const LaunchSizes launch(plan.launch);
  Checked checked;
  const std::vector<GivenSize> given = flags.given(problem, launch);
  checked.sizes = launch.known(given);
  checked.is_checked = !given.empty() || checked.sizes.unknown.empty();
  if (checked.is_checked) checked.problems = launch.problems(checked.sizes);
  return checked;
}

void append_resolved(std::string& out, const Plan& plan, const Checked& checked) {
  if (!checked.is_checked) return;
  out += "\nat these sizes\n";
  if (!checked.problems.empty()) {
    for (const std::string& problem : checked.problems) out += fmt::format("  refused: {}\n", problem);
    return;
  }
  if (!checked.sizes.unknown.empty()) {
    out += fmt::format("  nothing is refused, but what depends on {} was not checked\n",
                       fmt::join(checked.sizes.unknown, ", "));
    return;
  }
  const LaunchSizes launch(plan.launch);
  if (has_workspace(plan))
    out += fmt::format("  workspace: {} bytes\n",
                       grouped(launch.evaluate(plan.launch.workspace.bytes, checked.sizes.values)));
  const std::vector<ResolvedTensorMap> maps = launch.resolve(checked.sizes.values);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const ResolvedTensorMap& map = maps[i];
    out +=
        fmt::format("  {}: dims {}, strides {} bytes: every rule holds\n", plan.launch.tensor_maps[i].name,
                    fmt::join(map.dims.begin(), map.dims.begin() + map.rank, ", "),
                    fmt::join(map.strides_bytes.begin(), map.strides_bytes.begin() + std::max(map.rank, 1U) - 1, ", "));
  }
}

void append_costs(std::string& out, const Plan& plan) {
  if (plan.costs.empty()) return;
  out += "\ncost, us of each unit alone (modelled by published rates, never measured)\n";
  for (const CostSheet& sheet : plan.costs) {
    std::vector<std::string> units;
    for (const CostSheet::Unit& unit : sheet.units) units.push_back(fmt::format("{} {:.1f}", unit.name, unit.us));
    out += fmt::format("  {:<13} {:.1f} us, bound by {}: {}\n", sheet.device, sheet.us, sheet.limit,
                       fmt::join(units, ", "));
  }
}

void append_rejected(std::string& out, const Plan& plan) {
  if (plan.rejected.empty()) return;
  out += "\nother candidates\n";
  for (const Rejection& rejection : plan.rejected)
    out += fmt::format("  {:<34} {}\n", rejection.candidate, rejection.reason);
}

/// What --time says of the plan's kernel.
void append_predicted(std::string& out, const PredictedTime& predicted, const emulator::GpuTime& gpu) {
  out += "\npredicted (docs/time.md)\n";
  if (!predicted.fault.empty()) {
    out += fmt::format("  no time: {}\n", predicted.fault);
    return;
  }
  std::vector<std::string> limits, sizes;
  for (const emulator::LaunchTime& kernel : predicted.kernels) limits.push_back(kernel.limit);
  for (const auto& [name, value] : predicted.sizes) sizes.push_back(fmt::format("{} {}", name, value));
  out += fmt::format("  {}: {:.1f} us, limit: {}\n  at {}\n  {}\n", emulator::name_of(gpu),
                     emulator::total_microseconds(predicted.kernels), fmt::join(limits, "; "), fmt::join(sizes, ", "),
                     error_text(gpu));
}

/// Of a GPU that nothing was measured on: what the choice is by.
OrderedJson chosen_json(const emulator::GpuTime& gpu) {
  const emulator::PredictionError error = emulator::error_of(gpu);
  return {{"predicted_for", emulator::name_of(gpu)},
          {"median_error_percent", error.source.empty() ? OrderedJson() : OrderedJson(error.median_percent)}};
}

OrderedJson predicted_json(const PredictedTime& predicted, const emulator::GpuTime& gpu) {
  if (!predicted.fault.empty()) return {{"gpu", emulator::name_of(gpu)}, {"fault", predicted.fault}};
  OrderedJson json{{"gpu", emulator::name_of(gpu)},
                   {"time_us", emulator::total_microseconds(predicted.kernels)},
                   {"limits", OrderedJson::array()},
                   {"sizes", predicted.sizes}};
  for (const emulator::LaunchTime& kernel : predicted.kernels) json["limits"].push_back(kernel.limit);
  const emulator::PredictionError error = emulator::error_of(gpu);
  json["median_error_percent"] = error.source.empty() ? OrderedJson() : OrderedJson(error.median_percent);
  json["compared_with"] = error.source;
  return json;
}

/// Problems without a plan, of which a list may have many with few reasons.
class RejectedPlans {
 public:
  void add(std::size_t problem, const std::string& reason) {
    const auto [slot, is_new] = numbers_.try_emplace(reason, reasons_.size());
    if (is_new) reasons_.push_back(&slot->first);
    rejected_.push_back({static_cast<std::uint32_t>(problem), static_cast<std::uint32_t>(slot->second)});
  }
  /// The member "rejected": [{problem, reason}]
  void print(JsonStream& json, const ProblemList& list) const {
    json.begin_array("rejected");
    std::size_t next = 0, index = 0;
    if (!rejected_.empty())
      list.for_each_while([&](const Problem& problem, std::size_t) {
        if (rejected_[next].problem == index++) {
          json.item({{"problem", describe(problem)}, {"reason", *reasons_[rejected_[next].reason]}});
          ++next;
        }
        return next < rejected_.size();
      });
    json.end_array();
  }

 private:
  struct One {
    std::uint32_t problem, reason;
  };
  static_assert(kMaxProblems <= std::numeric_limits<std::uint32_t>::max());
  std::vector<One> rejected_;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::vector<const std::string*> reasons_;
};

class PlanCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera plan OP [selectors] | SHAPES.json",
        "tessera plan: show the kernel for a problem, why it won, and its launch",
        "Prints the Config, the operands with their tensor-map types, the matrix instruction, the shared-memory map,\n"
        "Tensor Memory, the warp roles with their registers, the launches, the workspace between them and every other\n"
        "candidate with the reason against it. With all sizes given the tensor maps are resolved and checked against\n"
        "the driver's rules, offline.\n"
        "\n"
        "With --time GPU the kernel is compiled too, and the time that it would take there is predicted, with the\n"
        "error that such predictions had where they were compared (docs/time.md). No GPU is needed.\n",
        {"tessera plan fmha --head-dim 128 --mask causal",
         "tessera plan fmha --tile-m 128 --tile-n 128 --stages 3 --head-dim 256   (why it is refused)",
         "tessera plan fmha --batch 4 --heads-q 32 --heads-kv 8 --seqlen-q 4096 --seqlen-k 4096 --json",
         "tessera plan gemm --arch sm_100a --m 4096 --n 4096 --k 4096 --time b200"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("OP", subject_);
    flags.group("Flags");
    flags.text("--time", "GPU", time_,
               "predict the time on that GPU: b200 or another of docs/time.md, or a file (JSON)");
    size_flags_.add_to(flags);
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    call.stops_without_reader();
    if (subject_.empty()) throw Error(ErrorKind::usage, "plan: name an operator, like `tessera plan fmha`");
    size_flags_.parse();
    const ProblemList list = read_problems(subject_, selectors_);
    size_flags_.check(list);
    if (!time_.empty()) gpu_ = emulator::find_gpu_time(time_);
    return list.count() == 1 ? run_single(call, list.front()) : run_many(call, list);
  }

 private:
  static constexpr std::size_t kPlansAtOnce = 64;

  /// A problem's plan as it is printed, or why it has none.
  struct Rendered {
    std::string text, rejected;
    bool is_unsized = false;  ///< rejected for its sizes, not for want of a kernel
    std::string size_refusal;
  };

  ExitCode run_single(Call& call, const Problem& problem) {
    const Plan plan = make_plan(problem);
    const Checked checked = check_sizes(plan, problem, size_flags_);
    if (gpu_ != nullptr) check_target(plan, *gpu_, time_);
    if (call.is_json())
      call.print_json(json_of(call, plan, checked));
    else
      call.print(text_of(call, plan, checked));
    for (const std::string& why : checked.problems) call.complain(fmt::format("refused: {}", why));
    return checked.problems.empty() ? kOk : kUnsupported;
  }

  Rendered rendered(Call& call, const Problem& problem) const {
    Rendered one;
    try {
      const Plan plan = make_plan(problem);
      const Checked checked = check_sizes(plan, problem, size_flags_);
      one.text = call.is_json() ? json_of(call, plan, checked).dump(2) : text_of(call, plan, checked);
      if (!checked.problems.empty()) one.size_refusal = checked.problems.front();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::usage) throw;
      one.rejected = error.what();
      one.is_unsized = error.kind() == ErrorKind::usage;
    }
    return one;
  }

  // Plan after plan: a long list's would not fit in memory. The first is printed when it is known that the call does
  // not fail.
  ExitCode run_many(Call& call, const ProblemList& list) {
    JsonStream json(call);
    RejectedPlans rejected;
    std::string unsized;
    bool is_first = true, is_any_refused = false;
    const auto print = [&](const Rendered& one) {
      if (is_first && call.is_json()) json.begin_array("plans");
      if (call.is_json())
        json.item_text(one.text);
      else
        call.print((is_first ? "" : "\n") + one.text);
      is_first = false;
      is_any_refused = is_any_refused || !one.size_refusal.empty();
    };
    for_each_batch(list, kPlansAtOnce, [&](const std::vector<Problem>& problems, std::size_t start) {
      std::vector<Rendered> plans(problems.size());
      in_parallel(problems.size(), call.jobs(), [&](std::size_t i) { plans[i] = rendered(call, problems[i]); });
      for (std::size_t i = 0; i < plans.size(); ++i) {
        if (plans[i].rejected.empty()) {
          print(plans[i]);
          if (!plans[i].size_refusal.empty())
            call.complain(fmt::format("refused: {}: {}", describe(problems[i]), plans[i].size_refusal));
          continue;
        }
        if (plans[i].is_unsized && unsized.empty()) unsized = plans[i].rejected;
        rejected.add(start + i, plans[i].rejected);
        call.note(fmt::format("rejected: {}: {}", describe(problems[i]), plans[i].rejected));
      }
      return true;
    });
    if (is_first && !unsized.empty()) throw Error(ErrorKind::usage, unsized);
    if (call.is_json()) {
      if (is_first) json.begin_array("plans");
      json.end_array();
      rejected.print(json, list);
      json.end();
    }
    return is_first || is_any_refused ? kUnsupported : kOk;
  }

  bool is_predicted(const Checked& checked) const { return gpu_ != nullptr && checked.problems.empty(); }

  std::string text_of(Call& call, const Plan& plan, const Checked& checked) const {
    std::string out;
    append_config(out, plan);
    append_resources(out, plan);
    append_costs(out, plan);
    if (is_predicted(checked)) append_predicted(out, predicted_time(*call.jit().kernel(plan), gpu_, time_), *gpu_);
    append_launch(out, plan);
    append_recipes(out, plan);
    append_resolved(out, plan, checked);
    append_rejected(out, plan);
    return out;
  }

  OrderedJson json_of(Call& call, const Plan& plan, const Checked& checked) const {
    OrderedJson json = to_json(plan, true);
    if (const auto gpu = gpu_of_choices(plan.arch)) json["chosen"] = chosen_json(*gpu);
    if (is_predicted(checked))
      json["predicted"] = predicted_json(predicted_time(*call.jit().kernel(plan), gpu_, time_), *gpu_);
    if (checked.is_checked) json["size_problems"] = checked.problems;
    if (checked.is_checked && !checked.sizes.unknown.empty()) json["sizes_unknown"] = checked.sizes.unknown;
    if (checked.is_checked && checked.sizes.unknown.empty() && checked.problems.empty())
      json["workspace_bytes"] = LaunchSizes(plan.launch).evaluate(plan.launch.workspace.bytes, checked.sizes.values);
    return json;
  }

  std::string subject_, time_;
  std::shared_ptr<const emulator::GpuTime> gpu_;  ///< that --time names
  SizeFlags size_flags_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace tessera::cli
