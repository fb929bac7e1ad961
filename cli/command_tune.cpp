// tessera tune: measure every legal candidate of a problem on this GPU, and write the fastest into a tuning file.
//
// Two passes, because clocks drift: all candidates with few launches, then those near the best in turns, by the median
// of the turns. The fastest whose result the reference accepts is written, also where it is the planner's own.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/call.h"
#include "cli/device_run.h"
#include "cli/predicted_time.h"
#include "cli/rejections.h"
#include "cli/run_operator.h"
#include "emulator/time/report.h"
#include "generator/tuning.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/internal/tuning.h"
#include "tessera/targets.h"

namespace tessera::cli {

namespace {

constexpr int kRounds = 3;
constexpr double kNear = 1.1;  // of the best of the first pass

struct Candidate {
  Problem problem;
  std::shared_ptr<Kernel> kernel;
  std::vector<double> rounds;
  double time_us = 0;
  std::string fault;  // why it cannot be chosen
};

/// What every candidate of one problem is measured with.
struct Setting {
  std::unique_ptr<RunOperator> op;
  RunFlags flags;
  std::vector<std::int64_t> sizes;
  std::map<std::string, reference::Tensor> inputs;
};

class TuneCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera tune OP [selectors] [sizes] [flags]\n       tessera tune SHAPES.json [flags]",
        "tessera tune: measure the planner's candidates on this GPU, or predict them for another",
        "Compiles every legal candidate of each problem, times them on the GPU, compares the fastest with the\n"
        "float64 reference, and writes it into a tuning file, whose other problems stay. The file is opt-in:\n"
        "plan, warm, check, run and emit take it by --tuning FILE, and a problem that it knows then has the pins\n"
        "of that candidate. Without it, choices depend on the target and the problem alone.\n"
        "\n"
        "With --device emulator --time GPU nothing is measured and no GPU is needed: times are predicted (how good\n"
        "that is: docs/time.md), results are not looked at, and the file says so. --dry-run lists the candidates of\n"
        "each problem and the pins that name them, the planner's choice first, then by its model.\n",
        {"tessera tune gemm --m 128 --n 7168 --k 16384 -o h200.json",
         "tessera warm shapes.json --tuning h200.json && tessera check shapes.json --tuning h200.json",
         "tessera tune gemm --arch sm_100a --m 128 --n 7168 --k 16384 --device emulator --time b200 -o b200.json"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("SUBJECT", subject_);
    flags.group("Flags");
    flags.text("-o", "FILE", output_, "the tuning file (default: tuning.json)");
    flags.number("--repeat", "N", repeat_, 1, "timed launches a turn, their median counts (default: 20)");
    flags.toggle("--dry-run", is_dry_run_, "list the candidates, compile and time nothing");
    flags.text("--device", "WORD", device_, "gpu (default), or emulator: times are predicted, for the GPU of --time");
    flags.text("--time", "GPU", time_, "with --device emulator: b200 or another GPU of docs/time.md, or a file (JSON)");
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    if (subject_.empty())
      throw Error(ErrorKind::usage, "tune: name an operator with sizes, like `tessera tune gemm --m 128 --n 7168`");
    if (device_ != "gpu" && device_ != "emulator")
      throw Error(ErrorKind::usage, fmt::format("--device = {}: must be gpu or emulator", device_));
    if (device_ == "emulator" && time_.empty())
      throw Error(ErrorKind::usage,
                  "--device emulator: how long that takes here means nothing; --time GPU predicts for a GPU");
    if (device_ == "gpu" && !time_.empty()) throw Error(ErrorKind::usage, "--time: is for --device emulator");
    if (!selectors_.tuning_file().empty())
      throw Error(ErrorKind::usage, "--tuning: tune writes such a file; name it with -o");
    const ProblemList list = read_problems(subject_, selectors_);
    if (is_dry_run_) return list_candidates(call, list);
    if (device_ == "emulator") return predict(call, list);
    std::string reason;
    const std::unique_ptr<Device> gpu = call.host().open_gpu ? call.host().open_gpu(reason) : nullptr;
    if (!gpu) throw Error(ErrorKind::device, "no GPU here to measure on: " + reason);
    if (gpu->info().is_emulated)
      throw Error(ErrorKind::device, gpu->info().name + " is emulated: its times mean nothing");
    return tune_all(call, list, open_tuning(gpu->info().name, ""),
                    [&](const Problem& problem, Tuning& tuning, OrderedJson& results) {
                      return tune_one(call, *gpu, problem, tuning, results);
                    });
  }

 private:
  using TuneOne = std::function<ExitCode(const Problem&, Tuning&, OrderedJson&)>;

  ExitCode tune_all(Call& call, const ProblemList& list, Tuning tuning, const TuneOne& tune) const {
    OrderedJson results = OrderedJson::array();
    ExitCode code = kOk;
    const Rejected rejected = for_each_legal(call, list, [&](const Problem& problem) {
      code = graver(code, tune(problem, tuning, results));
      tuning.write(output_);  // an interrupt keeps what was measured
    });
    if (call.is_json()) {
      OrderedJson json{{"file", output_}, {"device", tuning.device}, {"choices", results}};
      if (!tuning.predicted.empty()) json["predicted"] = tuning.predicted;
      call.print_json(json);
    } else {
      call.print(fmt::format("{}: {}\n", output_, counted(static_cast<std::int64_t>(tuning.size()), "problem")));
    }
    return rejected.of_all(call, list) ? kUnsupported : code;
  }

  ExitCode list_candidates(Call& call, const ProblemList& list) const {
    OrderedJson results = OrderedJson::array();
    const Rejected rejected = for_each_legal(call, list, [&](const Problem& problem) {
      OrderedJson candidates = OrderedJson::array();
      if (!call.is_json()) call.print(describe(problem) + "\n");
      for (const Problem& one : pinned_candidates(problem)) {
        OrderedJson pins = OrderedJson::object();
        std::string flags;
        for (const auto& [key, text] : pins_of(problem, one)) {
          pins[key] = text;
          std::string flag = key;
          std::replace(flag.begin(), flag.end(), '_', '-');
          flags += fmt::format(" --{} {}", flag, text);
        }
        const std::string kernel = planned_kernel(one);
        if (!call.is_json()) call.print(fmt::format("  {} {}\n", kernel, flags));
        candidates.push_back({{"kernel", kernel}, {"pins", std::move(pins)}});
      }
      results.push_back({{"problem", describe(problem)}, {"candidates", std::move(candidates)}});
    });
    if (call.is_json()) call.print_json({{"problems", results}});
    return rejected.of_all(call, list) ? kUnsupported : kOk;
  }

  struct Rejected {
    std::int64_t count = 0;
    std::string first;
    /// Whether no problem has a kernel, which is then told.
    bool of_all(Call& call, const ProblemList& list) const {
      if (count < list.count()) return false;
      complain_of_rejected(call, static_cast<std::size_t>(count), first);
      return true;
    }
  };

  /// Of several problems those that have no kernel are noted, and the others done.
  static Rejected for_each_legal(Call& call, const ProblemList& list, const std::function<void(const Problem&)>& run) {
    Rejected rejected;
    list.for_each([&](const Problem& problem, std::size_t) {
      try {
        run(problem);
      } catch (const Error& error) {
        if (list.count() == 1 || error.kind() != ErrorKind::unsupported) throw;
        if (++rejected.count == 1) rejected.first = error.what();
        call.note(fmt::format("rejected: {}: {}", describe(problem), error.what()));
      }
    });
    return rejected;
  }

  /// The file that is there, which must be of this device and made alike, or a new one.
  Tuning open_tuning(const std::string& device, const std::string& predicted) const {
    Tuning tuning;
    if (std::filesystem::exists(output_)) tuning = Tuning::read(output_);
    if (!tuning.device.empty() && tuning.predicted.empty() != predicted.empty())
      throw Error(ErrorKind::usage,
                  fmt::format("{}: holds choices that were {}: take another file", output_, how_made(tuning)));
    tuning.predicted = predicted;
    if (!tuning.device.empty() && tuning.device != device)
      throw Error(ErrorKind::usage, fmt::format("{}: holds choices of {}, this is {}: take another file", output_,
                                                tuning.device, device));
    tuning.device = device;
    return tuning;
  }

  static Setting setting_of(const Problem& problem, Device& device) {
    Setting setting;
    setting.op = make_run_operator(operator_name(problem));
    const Plan plan = make_plan(problem);
    const LaunchSizes launch(plan.launch);
    setting.sizes = sizes_of_run(*setting.op, plan, setting.flags, device.info());
    setting.flags.sizes = launch.by_name(setting.sizes);
    setting.inputs = setting.op->inputs(plan, launch, setting.sizes, setting.flags);
    return setting;
  }

  /// All legal candidates, compiled; those that do not compile are left out and told.
  static std::vector<Candidate> compiled_candidates(Call& call, const Problem& problem) {
    const std::vector<Problem> pinned = pinned_candidates(problem);
    WarmOptions options;
    options.jobs = call.jobs();
    options.on_progress = [&](const WarmProgress& p) {
      call.progress(fmt::format("compiling [{}/{}], {} left  {}", p.done, p.total, duration(p.seconds_left), p.kernel));
    };
    const WarmReport report = call.jit().warm(pinned, options);
    call.clear_progress();
    std::vector<Candidate> candidates;
    for (const Problem& one : pinned) {
      const std::string kernel = planned_kernel(one);
      const auto failed = std::find_if(report.entries.begin(), report.entries.end(), [&](const WarmedKernel& entry) {
        return entry.kernel == kernel && !entry.error.empty();
      });
      if (failed != report.entries.end()) {
        call.note(fmt::format("left out: {}: {}", kernel, failed->error));
      } else {
        candidates.push_back({one, call.jit().kernel(one), {}, 0, {}});
      }
    }
    if (candidates.empty()) throw Error(ErrorKind::compile, describe(problem) + ": no candidate compiles");
    return candidates;
  }

  // --- without a GPU
  ExitCode predict(Call& call, const ProblemList& list) const {
    const std::shared_ptr<const emulator::GpuTime> gpu = emulator::find_gpu_time(time_);
    const std::string how = fmt::format(
        "by the time model (docs/time.md), description {}; values were not computed, results not compared", time_);
    return tune_all(call, list, open_tuning(emulator::name_of(*gpu), how),
                    [&](const Problem& problem, Tuning& into, OrderedJson& results) {
                      return predict_one(call, gpu, problem, into, results);
                    });
  }

  ExitCode predict_one(Call& call, const std::shared_ptr<const emulator::GpuTime>& gpu, const Problem& problem,
                       Tuning& tuning, OrderedJson& results) const {
    check_target(make_plan(problem), *gpu, time_);
    std::vector<Candidate> candidates = compiled_candidates(call, problem);
    const std::string planned = candidates.front().kernel->plan().kernel;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      call.progress(
          fmt::format("predicting [{}/{}] {}", i + 1, candidates.size(), candidates[i].kernel->plan().kernel));
      const PredictedTime predicted = predicted_time(*candidates[i].kernel, gpu, time_);
      candidates[i].fault = predicted.fault;
      candidates[i].time_us = emulator::total_microseconds(predicted.kernels);
    }
    call.clear_progress();
    const auto failed =
        std::stable_partition(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.fault.empty(); });
    for (auto one = failed; one != candidates.end(); ++one)
      call.note(fmt::format("left out: {}: {}", one->kernel->plan().kernel, one->fault));
    candidates.erase(failed, candidates.end());
    if (candidates.empty()) throw Error(ErrorKind::unsupported, describe(problem) + ": no candidate has a prediction");
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.time_us < b.time_us; });
    TunedChoice choice = choice_of(problem, candidates.front());
    choice.candidates = static_cast<int>(candidates.size());
    for (const Candidate& candidate : candidates)
      if (candidate.kernel->plan().kernel == planned) choice.default_us = candidate.time_us;
    report(call, problem, choice, candidates, planned, results);
    tuning.set(problem, std::move(choice));
    return kOk;
  }

  /// A median of launches; a candidate that does not launch here is out.
  static void time(Candidate& candidate, Device& device, const Setting& setting, int repeat) {
    try {
      DeviceRun run(device, *candidate.kernel, setting.sizes,
                    setting.op->scalars(candidate.kernel->plan(), setting.flags), setting.inputs);
      candidate.rounds.push_back(run.time_us(repeat));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::unsupported) throw;
      candidate.fault = error.what();
      return;
    }
    std::vector<double> sorted = candidate.rounds;
    std::sort(sorted.begin(), sorted.end());
    candidate.time_us = sorted[sorted.size() / 2];
  }

  /// What the reference says of a candidate's outputs; empty: right.
  static std::string wrong(Call& call, Device& device, const Candidate& candidate, const Setting& setting) {
    const Plan& plan = candidate.kernel->plan();
    DeviceRun run(device, *candidate.kernel, setting.sizes, setting.op->scalars(plan, setting.flags), setting.inputs);
    run.launch();
    std::vector<std::string> problems;
    const auto outputs = run.read_outputs(problems);
    const auto result = setting.op->compare(plan, setting.inputs, outputs, setting.flags, call.jobs());
    problems.insert(problems.end(), result.problems.begin(), result.problems.end());
    return problems.empty() ? std::string() : problems.front();
  }

  ExitCode tune_one(Call& call, Device& device, const Problem& problem, Tuning& tuning, OrderedJson& results) const {
    const Setting setting = setting_of(problem, device);
    std::vector<Candidate> candidates = compiled_candidates(call, problem);
    const auto is_out = [](const Candidate& c) { return !c.fault.empty(); };
    const auto faster = [](const Candidate& a, const Candidate& b) { return a.time_us < b.time_us; };
    const int few = static_cast<int>(std::max<std::int64_t>(3, repeat_ / 4));
    const std::string planned = candidates.front().kernel->plan().kernel;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      call.progress(fmt::format("measuring [{}/{}] {}", i + 1, candidates.size(), candidates[i].kernel->plan().kernel));
      time(candidates[i], device, setting, few);
    }
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), is_out), candidates.end());
    if (candidates.empty()) throw Error(ErrorKind::unsupported, describe(problem) + ": no candidate launches here");
    const int measured = static_cast<int>(candidates.size());
    const double bound = kNear * std::min_element(candidates.begin(), candidates.end(), faster)->time_us;
    candidates.erase(
        std::remove_if(candidates.begin(), candidates.end(),
                       [&](const Candidate& c) { return c.time_us > bound && c.kernel->plan().kernel != planned; }),
        candidates.end());
    for (Candidate& candidate : candidates) candidate.rounds.clear();
    for (int round = 0; round < kRounds; ++round)
      for (Candidate& candidate : candidates) time(candidate, device, setting, static_cast<int>(repeat_));
    call.clear_progress();
    std::stable_sort(candidates.begin(), candidates.end(), faster);
    const auto standard = std::find_if(candidates.begin(), candidates.end(),
                                       [&](const Candidate& c) { return c.kernel->plan().kernel == planned; });
    const double default_us = standard == candidates.end() ? 0 : standard->time_us;
    ExitCode code = kOk;
    for (const Candidate& candidate : candidates) {
      if (const std::string fault = wrong(call, device, candidate, setting); !fault.empty()) {
        call.warn(fmt::format("{} is wrong and not taken: {}", candidate.kernel->plan().kernel, fault));
        code = kWrong;
        continue;
      }
      TunedChoice choice = choice_of(problem, candidate);
      choice.default_us = default_us;
      choice.candidates = measured;
      report(call, problem, choice, candidates, planned, results);
      tuning.set(problem, std::move(choice));
      return code;
    }
    throw Error(ErrorKind::device, describe(problem) + ": no candidate gave a right result");
  }

  /// The pins that a candidate has beside the problem's own.
  static std::vector<std::pair<std::string, std::string>> pins_of(const Problem& problem, const Problem& candidate) {
    std::vector<std::pair<std::string, std::string>> pins;
    for (const Selector& selector : selectors(operator_name(problem)))
      if (selector.kind == SelectorKind::pin && selector.text(candidate) != selector.text(problem))
        pins.emplace_back(selector.key, selector.text(candidate));
    return pins;
  }

  static TunedChoice choice_of(const Problem& problem, const Candidate& candidate) {
    TunedChoice choice;
    choice.pins = pins_of(problem, candidate.problem);
    choice.kernel = candidate.kernel->plan().kernel;
    choice.time_us = candidate.time_us;
    return choice;
  }

  /// `timed`: fastest first; where a GPU measured them only those near the best.
  void report(Call& call, const Problem& problem, const TunedChoice& choice, const std::vector<Candidate>& timed,
              const std::string& planned, OrderedJson& results) const {
    OrderedJson pins = OrderedJson::object(), times = OrderedJson::object();
    for (const auto& [key, text] : choice.pins) pins[key] = text;
    for (const Candidate& candidate : timed) times[candidate.kernel->plan().kernel] = candidate.time_us;
    results.push_back({{"problem", describe(problem)},
                       {"kernel", choice.kernel},
                       {"pins", std::move(pins)},
                       {"time_us", choice.time_us},
                       {"default", planned},
                       {"default_us", choice.default_us},
                       {"candidates", choice.candidates},
                       {"times_us", std::move(times)}});
    if (call.is_json()) return;
    call.print(fmt::format("{}\n  {:.1f} us  {}\n  {:.1f} us  {}, the planner's choice; {} {}\n", describe(problem),
                           choice.time_us, choice.kernel, choice.default_us, planned,
                           counted(choice.candidates, "candidate"), time_.empty() ? "measured" : "predicted"));
  }

  std::string subject_, output_ = "tuning.json", device_ = "gpu", time_;
  std::int64_t repeat_ = 20;
  bool is_dry_run_ = false;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_tune_command() { return std::make_unique<TuneCommand>(); }

}  // namespace tessera::cli
