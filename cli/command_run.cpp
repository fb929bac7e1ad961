// tessera run: real inputs through the compiled kernel, on a GPU or in the emulator, compared with the reference.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "cli/call.h"
#include "cli/device_run.h"
#include "cli/emulation.h"
#include "cli/observation.h"
#include "cli/rejections.h"
#include "cli/run_arrays.h"
#include "cli/run_lengths.h"
#include "cli/run_operator.h"
#include "cli/sampled_run.h"
#include "cli/size_flags.h"
#include "cli/strided.h"
#include "cli/time_inputs.h"
#include "emulator/time/report.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

/// "q=file.npy"
std::pair<std::string, std::string> parse_binding(const char* flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error(ErrorKind::usage, fmt::format("{} {}: must be NAME=FILE.npy, like {} q=q.npy", flag, text, flag));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

float parse_real(const char* flag, const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  const bool is_in_range = is_number && std::abs(value) <= std::numeric_limits<float>::max();
  if (!is_in_range) throw Error(ErrorKind::usage, fmt::format("{} = {}: must be a number that fp32 holds", flag, text));
  return static_cast<float>(value);
}

float parse_positive(const char* flag, const std::string& text) {
  const float value = parse_real(flag, text);
  if (value <= 0) throw Error(ErrorKind::usage, fmt::format("{} = {}: must be positive", flag, text));
  return value;
}

/// A number, or null: JSON has neither infinity nor NaN.
OrderedJson number(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

class RunCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera run OP [selectors] [sizes] [flags]\n       tessera run SHAPES.json [flags]",
        "tessera run: launch a kernel and compare it with a float64 reference",
        "Outputs are poisoned before the launch and the memory around every buffer is guarded. Every element is "
        "looked\n"
        "at for poison; rows are compared with a float64 reference, all of them or, for large problems, whole rows:\n"
        "first and last, every tile edge, random ones. The allowed error is derived from the roundings of the\n"
        "hardware (reference/fmha_bound.h). Where no GPU runs the target's code the kernel's PTX runs in the "
        "emulator,\n"
        "on the CPU, with every check that it has; give small sizes there. Failures that it finds fail the call,\n"
        "hazards are counted and fail it with --strict.\n",
        {"tessera run fmha --head-dim 128 --mask causal --batch 4 --heads-q 32 --heads-kv 8 --seqlen-q 4096",
         "tessera run fmha --input q=q.npy --input k=k.npy --input v=v.npy --save o=o.npy",
         "tessera run fmha --head-dim 64 --seqlen-q 150 --device emulator --schedule all",
         "tessera run fmha --output unnormalized --inputs integer   (exact: no rounding is allowed)",
         "tessera run copy2d --dtype u8 --shape 333,4096 --swizzle 64B"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("OP", subject_);
    flags.group("Flags");
    flags.text("--device", "WORD", device_,
               "gpu, emulator or auto (default): the GPU where one runs the target's code, else the emulator");
    run_.inputs = "standard";
    flags.text("--inputs", "WORD", run_.inputs,
               "standard (default): normal, with what ordinary numbers do not have (docs/cli.md); normal; uniform; "
               "integer: small whole numbers; rising (fmha): normal, with scores that grow towards the first key");
    flags.number("--seed", "N", run_.seed, 0, "of the inputs and of the emulator's schedule (default: 1)");
    flags.list("--input", "NAME=FILE", input_files_, "an input from a .npy file; repeatable");
    flags.list("--save", "NAME=FILE", output_files_, "write an output as a .npy file; repeatable");
    flags.text("--softmax-scale", "X", scale_, "fmha: factor of the scores (default: 1 / sqrt(head_dim))");
    flags.text("--softcap-value", "X", softcap_, "fmha with --softcap tanh: what scores are capped at (default: 30)");
    flags.text("--lengths", "WORD", run_.lengths_file,
               "fmha: queries and keys of each sequence, where a kernel reads them from memory: random (default), none "
               "included; or a file, a line \"queries keys\" a sequence");
    flags.text("--alpha", "X", alpha_, "gemm, gemv: factor of the product (default: 1)");
    flags.text("--beta", "X", beta_, "gemm with --c matrix: factor of c (default: 1)");
    flags.list("--size", "NAME=N", given_sizes_,
               "any size of the launch, strides too, like lda=136; gaps are poisoned; repeatable");
    flags.text("--shape", "N,N", run_.shape, "copy2d: extents, outermost first");
    flags.text("--group-rows", "N,...", run_.group_rows, "gemm with --grouping: rows of each group; m and l follow");
    flags.toggle("--pad-rows", run_.pads_rows, "copy operands into rows as far apart as the kernel asks for");
    flags.number("--repeat", "N", repeat_, 0, "GPU: timed launches, their median counts; 0: no timing (default: 20)");
    emulation_.add_to(flags);
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    check_flags();
    const ProblemList list = read_problems(subject_, selectors_);
    refuse_sizes_twice(list, run_.given_sizes);
    const bool is_single = list.count() == 1;
    if (!is_single && !output_files_.empty())
      throw Error(ErrorKind::usage, fmt::format("--save keeps one run's outputs: there are {} problems", list.count()));
    if (!is_single && !(emulation_.trace.empty() && emulation_.timeline.empty()))
      throw Error(ErrorKind::usage,
                  fmt::format("--trace and --timeline are of one run: there are {} problems", list.count()));
    std::string reason;
    const std::unique_ptr<Device> gpu =
        device_ != "emulator" && call.host().open_gpu ? call.host().open_gpu(reason) : nullptr;
    if (!gpu && device_ == "gpu") throw Error(ErrorKind::device, "no GPU here: " + reason);
    OrderedJson results = OrderedJson::array();
    ExitCode code = kOk;
    std::int64_t rejected = 0;
    std::string first_rejection;
    list.for_each([&](const Problem& problem, std::size_t) {
      try {
        OrderedJson result = run_one(call, problem, gpu.get(), reason, is_single);
        if (result["pass"] == false) code = graver(code, kWrong);
        results.push_back(std::move(result));
      } catch (const Error& error) {
        if (is_single || error.kind() != ErrorKind::unsupported) throw;
        if (++rejected == 1) first_rejection = error.what();
        call.note(fmt::format("rejected: {}: {}", describe(problem), error.what()));
      }
    });
    if (call.is_json())
      call.print_json(is_single ? results.front()
                                : OrderedJson{{"pass", code == kOk}, {"runs", results}, {"rejected", rejected}});
    if (rejected < list.count()) return code;
    complain_of_rejected(call, static_cast<std::size_t>(rejected), first_rejection);
    return kUnsupported;
  }

 private:
  void check_flags() {
    if (subject_.empty()) throw Error(ErrorKind::usage, "run: name an operator, like `tessera run fmha`");
    emulation_.schedules();
    index_of_word("--device", device_, {"gpu", "emulator", "auto"});
    index_of_word("--inputs", run_.inputs, {"standard", "normal", "uniform", "integer", "rising"});
    if (run_.inputs == "rising") require_flag(subject_, "--inputs rising");
    if (!run_.shape.empty()) require_flag(subject_, "--shape");
    if (!scale_.empty()) require_flag(subject_, "--softmax-scale");
    if (!softcap_.empty()) require_flag(subject_, "--softcap-value");
    if (!run_.lengths_file.empty()) require_flag(subject_, "--lengths");
    if (!alpha_.empty()) require_flag(subject_, "--alpha");
    if (!beta_.empty()) require_flag(subject_, "--beta");
    if (!alpha_.empty()) run_.alpha = parse_real("--alpha", alpha_);
    if (!beta_.empty()) run_.beta = parse_real("--beta", beta_);
    if (!scale_.empty()) run_.softmax_scale = parse_real("--softmax-scale", scale_);
    if (!softcap_.empty()) run_.softcap = parse_positive("--softcap-value", softcap_);
    if (!run_.lengths_file.empty() && run_.lengths_file != "random") run_.lengths = read_lengths(run_.lengths_file);
    run_.given_sizes = parse_sizes(given_sizes_);
    refuse_name_twice("--input", input_files_);
    refuse_name_twice("--save", output_files_);
  }

  /// Where a problem runs: the GPU, or an emulator of its own that stands for the target's GPU.
  struct Place {
    Device* device = nullptr;
    std::unique_ptr<emulator::EmulatedDevice> emulated;
    std::string note;  ///< why it was chosen, where that is not what was asked for
  };

  Place choose_place(const Call& call, const Plan& plan, Device* gpu, const std::string& reason) const {
    const std::string& arch = plan.launch.arch;
    Place place;
    if (device_ == "gpu" || (device_ == "auto" && gpu != nullptr && runs_code(gpu->info(), arch))) {
      place.device = gpu;
      return place;
    }
    if (device_ == "auto")
      place.note = (gpu == nullptr ? fmt::format("no GPU here ({}): in the emulator", reason.empty() ? "none" : reason)
                                   : fmt::format("{} does not run {} code: in the emulator", gpu->info().name, arch));
    place.emulated = emulation_.open(call, arch, static_cast<std::uint64_t>(run_.seed));
    place.device = place.emulated.get();
    return place;
  }

  OrderedJson run_one(Call& call, const Problem& problem, Device* gpu, const std::string& reason, bool is_single) {
    const std::unique_ptr<RunOperator> op = make_run_operator(operator_name(problem));
    RunFlags flags = run_;
    const Plan plan = make_plan(problem);
    for (const std::string& text : input_files_) {
      const auto [name, file] = parse_binding("--input", text);
      flags.arrays[name] = read_array(plan, name, file);
    }
    for (const std::string& text : output_files_) check_save(plan, parse_binding("--save", text).first);
    const Place place = choose_place(call, plan, gpu, reason);
    flags.is_emulated = place.emulated != nullptr;
    if (!place.emulated && emulation_.observes())
      throw Error(ErrorKind::usage,
                  "--stats, --trace, --timeline and --time watch the emulator: give --device emulator too");
    const LaunchSizes launch(plan.launch);
    // Of a product a member that no launch takes is left out, as one without a kernel is.
    const std::vector<std::int64_t> sizes =
        sizes_of_run(*op, plan, flags, place.device->info(), is_single ? ErrorKind::usage : ErrorKind::unsupported);
    check_shapes(plan, launch, sizes, flags);
    flags.sizes = launch.by_name(sizes);
    if (!flags.lengths_file.empty()) check_lengths(plan, flags);
    if (!place.note.empty()) call.note(place.note);
    const std::shared_ptr<Kernel> kernel = call.jit().kernel(plan);
    return run_on(call, *op, *kernel, place, launch, sizes, flags);
  }

  /// What the launches of one problem gave.
  struct Outcome {
    std::map<std::string, reference::Tensor> outputs;
    std::vector<std::string> problems;
    std::vector<emulator::EmulatorFinding> findings;
    OrderedJson schedules = OrderedJson::array();
    bool is_stopped = false;  ///< by a failure: outputs are unfinished
    bool pass = false;
    double time_us = 0;
    std::vector<emulator::LaunchTime> predicted;  ///< with --time
  };

  Outcome launch_on_gpu(DeviceRun& run) const {
    Outcome outcome;
    run.launch();
    outcome.outputs = run.read_outputs(outcome.problems);
    if (repeat_ == 0) return outcome;
    outcome.time_us = run.time_us(static_cast<int>(std::min<std::int64_t>(repeat_, 100000)));
    for (const auto& [name, again] : run.read_outputs(outcome.problems))
      if (!run.is_added_to(name) && again.bytes != outcome.outputs.at(name).bytes)
        outcome.problems.push_back(fmt::format("{}: another launch with the same inputs gave other bits", name));
    return outcome;
  }

  OrderedJson schedule_json(emulator::Schedule schedule, const emulator::LaunchStatistics& statistics) const {
    OrderedJson json{{"schedule", to_string(schedule)},
                     {"seed", run_.seed},
                     {"warp_instructions", statistics.warp_instructions},
                     {"seconds", statistics.seconds}};
    add_threads(json, statistics);
    return json;
  }

  Outcome launch_emulated(DeviceRun& run, emulator::EmulatedDevice& device) const {
    Outcome outcome;
    std::vector<emulator::ScheduleClue> first_clues;
    for (const emulator::Schedule schedule : emulation_.schedules()) {
      device.set_schedule(schedule, static_cast<std::uint64_t>(run_.seed));
      run.reset();
      run.launch();
      outcome.is_stopped = merge_findings(outcome.findings, device.take_findings());
      outcome.predicted = device.take_times();
      if (emulation_.skips_values) return outcome;
      const emulator::LaunchStatistics statistics = device.statistics();
      outcome.schedules.push_back(schedule_json(schedule, statistics));
      auto outputs = run.read_outputs(outcome.problems);
      const std::size_t problems = outcome.problems.size();
      std::vector<emulator::ScheduleClue> clues = device.take_clues();
      for (const auto& [name, first] : outcome.outputs)
        if (!outcome.is_stopped && !run.is_added_to(name) && outputs.at(name).bytes != first.bytes)
          outcome.problems.push_back(
              fmt::format("{}: schedule {} gave other bits than the first one (again: --schedule {} --seed {})", name,
                          to_string(schedule), to_string(schedule), run_.seed));
      if (outcome.problems.size() > problems) merge_findings(outcome.findings, clues_to_difference(first_clues, clues));
      if (outcome.outputs.empty()) first_clues = std::move(clues);
      if (outcome.outputs.empty() || outcome.is_stopped) outcome.outputs = std::move(outputs);
      if (outcome.is_stopped) break;
    }
    return outcome;
  }

  /// Tensors that are too large for this machine: some tiles.
  Outcome sample(Call& call, const RunOperator& op, Kernel& kernel, emulator::EmulatedDevice& device,
                 const std::vector<std::int64_t>& sizes, const RunFlags& flags, reference::Comparison& result) const {
    if (!output_files_.empty()) throw Error(ErrorKind::unsupported, "--save: of so large outputs some tiles are made");
    Outcome outcome;
    for (const emulator::Schedule schedule : emulation_.schedules()) {
      device.set_schedule(schedule, static_cast<std::uint64_t>(run_.seed));
      SampledVerdict verdict = run_sampled(device, kernel, op, sizes, flags, call.jobs());
      call.note(fmt::format("more than 2^31 elements: {} of {} clusters run, {} tiles compared", verdict.clusters.run,
                            grouped(static_cast<std::int64_t>(verdict.clusters.of_grid)), verdict.tiles));
      outcome.is_stopped = merge_findings(outcome.findings, std::move(verdict.findings));
      outcome.schedules.push_back(schedule_json(schedule, device.statistics()));
      result = std::move(verdict.comparison);
      if (outcome.is_stopped || !result.pass) break;
    }
    return outcome;
  }

  OrderedJson run_on(Call& call, const RunOperator& op, Kernel& kernel, const Place& place, const LaunchSizes& launch,
                     const std::vector<std::int64_t>& sizes, const RunFlags& flags) const {
    const Plan& plan = kernel.plan();
    Observation observation(emulation_);
    if (place.emulated) place.emulated->set_observer(observation.observer());
    Outcome outcome;
    reference::Comparison result;
    if (place.emulated && reaches_far(plan, launch, sizes)) {
      outcome = sample(call, op, kernel, *place.emulated, sizes, flags, result);
    } else {
      std::map<std::string, reference::Tensor> inputs = emulation_.skips_values && place.emulated
                                                            ? inputs_for_time(op, plan, launch, sizes, flags)
                                                            : op.inputs(plan, launch, sizes, flags);
      fold(inputs, plan, launch, sizes);
      DeviceRun run(*place.device, kernel, sizes, op.scalars(plan, flags), inputs);
      outcome = place.emulated ? launch_emulated(run, *place.emulated) : launch_on_gpu(run);
      save(outcome.outputs);
      if (!outcome.is_stopped && !(place.emulated && emulation_.skips_values))
        result = op.compare(plan, inputs, outcome.outputs, flags, call.jobs());
    }
    observation.finish();
    outcome.problems.insert(outcome.problems.end(), result.problems.begin(), result.problems.end());
    const std::int64_t hazards = hazards_of(outcome.findings);
    outcome.pass = outcome.problems.empty() && !outcome.is_stopped && !(emulation_.is_strict && hazards > 0);
    const bool is_timed = !place.emulated && repeat_ > 0;
    if (place.emulated && emulation_.skips_values) return time_alone(call, plan, place, outcome);
    if (!call.is_json()) {
      print_text(call, plan, place, result, outcome);
      if (!outcome.predicted.empty()) call.print(time_text(outcome.predicted));
      call.print(observation.text());
    }
    if (!outcome.pass) call.complain(why_failed(plan.kernel, outcome.findings, outcome.problems, emulation_.is_strict));
    const auto judged = [&](double value) { return outcome.is_stopped ? OrderedJson(nullptr) : number(value); };
    OrderedJson json{{"pass", outcome.pass},
                     {"rel_error", judged(result.rel_error)},
                     {"max_abs_error", judged(result.max_abs_error)},
                     {"cosine", judged(result.cosine)},
                     {"rows_checked", result.rows_checked},
                     {"device", place.device->info().name},
                     {"time_us", is_timed ? number(outcome.time_us) : OrderedJson(nullptr)},
                     {"kernel", plan.kernel},
                     {"rows_total", result.rows_total},
                     {"rel_bound", judged(result.rel_bound)},
                     {"problems", outcome.problems}};
    if (!place.emulated) return json;
    if (!outcome.predicted.empty()) json["predicted"] = time_json(outcome.predicted);
    json["schedules"] = outcome.schedules;
    json["hazards"] = hazards;
    json["findings"] = OrderedJson::array();
    for (const emulator::EmulatorFinding& finding : outcome.findings) json["findings"].push_back(finding_json(finding));
    if (emulation_.shows_statistics) json["statistics"] = observation.json();
    return json;
  }

  /// What is told with --no-values: nothing of results.
  OrderedJson time_alone(Call& call, const Plan& plan, const Place& place, const Outcome& outcome) const {
    if (!call.is_json()) {
      call.print(fmt::format("{} on {}\n", plan.kernel, place.device->info().name));
      for (const emulator::EmulatorFinding& finding : outcome.findings) call.print("  " + finding.to_string() + "\n");
      call.print(time_text(outcome.predicted));
    }
    if (!outcome.pass) call.complain(why_failed(plan.kernel, outcome.findings, outcome.problems, false));
    return {{"pass", outcome.pass},
            {"device", place.device->info().name},
            {"kernel", plan.kernel},
            {"predicted", time_json(outcome.predicted)}};
  }

  /// Where the strides make elements share memory, the reference sees what is there.
  static void fold(std::map<std::string, reference::Tensor>& inputs, const Plan& plan, const LaunchSizes& launch,
                   const std::vector<std::int64_t>& sizes) {
    for (const BufferSpec& buffer : plan.launch.buffers) {
      const auto input = inputs.find(buffer.name);
      if (input == inputs.end()) continue;
      std::vector<std::int64_t> strides;
      for (const Expression& stride : buffer.strides) strides.push_back(launch.evaluate(stride, sizes));
      reference::Tensor& tensor = input->second;
      if (strides.size() != tensor.shape.size() || is_laid_out_densely(tensor.shape, strides)) continue;
      strided_elements(buffer.name, tensor.shape, strides);  // which refuses what is too large, by name
      tensor = gather(spread(tensor, strides), tensor.dtype, tensor.shape, strides);
    }
  }

  void print_text(Call& call, const Plan& plan, const Place& place, const reference::Comparison& result,
                  const Outcome& outcome) const {
    call.print(fmt::format("{} on {}\n", plan.kernel, place.device->info().name));
    if (outcome.is_stopped) {
      call.print(fmt::format("  {}: the launch was stopped\n", verdict_text(false, hazards_of(outcome.findings))));
    } else {
      call.print(
          fmt::format("  {}: relative error {:.3g} (explained by rounding: {:.3g}), largest {:.3g}, cosine {:.9f}, "
                      "{} of {} rows\n",
                      verdict_text(outcome.pass, hazards_of(outcome.findings)), result.rel_error, result.rel_bound,
                      result.max_abs_error, result.cosine, grouped(result.rows_checked), grouped(result.rows_total)));
    }
    for (const emulator::EmulatorFinding& finding : outcome.findings) call.print("  " + finding.to_string() + "\n");
    for (const std::string& problem : outcome.problems) call.print("  " + problem + "\n");
    call.print(schedule_lines(outcome.schedules));
    if (!place.emulated && repeat_ > 0)
      call.print(
          fmt::format("  time {:.1f} us (median of {}, L2 overwritten before each)\n", outcome.time_us, repeat_));
  }

  static void check_save(const Plan& plan, const std::string& name) {
    const bool is_output =
        std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                    [&](const BufferSpec& buffer) { return buffer.name == name && buffer.role != BufferRole::input; });
    if (!is_output)
      throw Error(ErrorKind::usage, fmt::format("--save {}: {} has no output of that name", name, plan.op));
  }

  void save(const std::map<std::string, reference::Tensor>& outputs) const {
    for (const std::string& text : output_files_) {
      const auto [name, file] = parse_binding("--save", text);
      const reference::Tensor& tensor = outputs.at(name);
      write_npy(file, {std::string(npy_descr_of(reference::dtype_name(tensor.dtype))), tensor.shape, tensor.bytes});
    }
  }

  std::string subject_, device_ = "auto", scale_, softcap_, alpha_, beta_;
  std::vector<std::string> input_files_, output_files_, given_sizes_;
  std::int64_t repeat_ = 20;
  RunFlags run_;
  EmulatorFlags emulation_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace tessera::cli
