// tessera emulate: any PTX file on the CPU, launched as a file says.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/call.h"
#include "cli/emit_launch.h"
#include "cli/emulate_run.h"
#include "cli/observation.h"
#include "cli/program_run.h"
#include "emulator/syntax/parser.h"
#include "emulator/time/report.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr std::uintmax_t kMaxPtxBytes = std::uintmax_t{256} << 20;
constexpr std::uintmax_t kMaxLaunchBytes = std::uintmax_t{16} << 20;

/// "q=file.npy" to its two halves.
std::pair<std::string, std::string> split_binding(const char* flag, const std::string& text, const char* what) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error(ErrorKind::usage, fmt::format("{} {}: must be NAME={}", flag, text, what));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

double read_number(const char* flag, const std::string& text, double min) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value) || value < min)
    throw Error(ErrorKind::usage,
                fmt::format("{} = {}: must be a finite number{}", flag, text, min == 0 ? " of at least 0" : ""));
  return value;
}

std::int64_t read_whole(const char* flag, const std::string& text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value == INT64_MIN)
    throw Error(ErrorKind::usage, fmt::format("{} = {}: must be a whole number", flag, text));
  return value;
}

std::string read_limited(const std::string& file, std::uintmax_t max_bytes) {
  std::error_code ignored;
  const std::uintmax_t bytes = std::filesystem::file_size(file, ignored);
  if (!ignored && bytes > max_bytes)
    throw Error(ErrorKind::usage, fmt::format("{}: has {} bytes: at most {} are read", file, bytes, max_bytes));
  return read_text(file);
}

class EmulateCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera emulate FILE.ptx --launch LAUNCH.json [flags], or tessera emulate [flags] -- PROGRAM [arguments]",
        "tessera emulate: run any PTX file or CUDA program on the CPU, and name its bugs",
        "The launch file is the `launch` of a plan plus `bindings`: what sizes, scalars and buffers stand for, and\n"
        "what outputs must hold (docs/emulator.md explains every key with an example). Flags override it. The call\n"
        "fails with 1 when the emulator finds a failure or an output is not as expected; hazards are reported, and\n"
        "fail with --strict. Needs no GPU, no driver and no compiler.\n"
        "\n"
        "Behind -- stands a program that nvcc built, as it is: its CUDA calls come here, and its own exit code is the\n"
        "call's unless a failure was found (docs/guest-programs.md says what is provided).\n",
        {"tessera emulate kernel.ptx --launch launch.json",
         "tessera emulate kernel.ptx --launch launch.json --schedule all --seed 7 --strict",
         "tessera emulate kernel.ptx --launch launch.json --bind q=q.npy --expect o=o.npy --rtol 0.01",
         "tessera emulate --gpu B200 --schedule all --races -- ./my_program --size 128",
         "tessera emulate --time b200 --no-values -- ./my_program --size 4096",
         "tessera plan fmha --head-dim 64 --json | tessera emulate --emit-launch - -o launch.json"}};
  }

  void add_flags(FlagSet& flags) override {
    flags.positional("FILE", file_);
    flags.group("Flags");
    flags.text("--launch", "FILE", launch_, "the launch file, JSON");
    flags.text("--entry", "NAME", entry_, "kernel of steps that name none (default: the only one of the file)");
    flags.list("--size", "NAME=N", sizes_, "value of a size; repeatable");
    flags.list("--scalar", "NAME=X", scalar_values_, "value of a scalar; repeatable");
    flags.list("--bind", "NAME=FILE", bound_, "contents of a buffer from a .npy file; repeatable");
    flags.list("--expect", "NAME=FILE", expected_, "what a buffer must hold afterwards, a .npy file; repeatable");
    flags.text("--atol", "X", atol_, "--expect: allowed absolute difference (default: 0)");
    flags.text("--rtol", "X", rtol_, "--expect: allowed difference relative to what is expected (default: 0)");
    flags.list("--save", "NAME=FILE", saved_, "write a buffer as a .npy file; repeatable");
    flags.number("--seed", "N", seed_, 0, "of random buffers and of the schedule (default: 1)");
    flags.toggle("--skip-map-rules", skips_rules_, "encode tensor maps that a driver would refuse");
    flags.toggle("--validate", validates_,
                 "read every kernel of the file, name what the emulator does not know, and stop");
    flags.text("--emit-launch", "PLAN", plan_,
               "write a launch file for a plan (`tessera plan --json`; -: stdin) and stop");
    flags.text("-o", "FILE", output_, "--emit-launch: where to (default: stdout)");
    flags.text("--gpu", "NAME", program_flags_.gpu,
               "of a program: the GPU that it is on: H100 (default), H200, B200, B300, RTX5090, GB10");
    flags.text("--arch", "TARGET", program_flags_.arch,
               "of a program: run its PTX for this target, sm_100a or another (default: the GPU's)");
    flags.toggle("--launches", program_flags_.shows_launches, "of a program: a line on stderr for each launch");
    flags.toggle("--tear-vectors", program_flags_.tears_vectors,
                 "of a program, under the weak schedule: vector accesses are scalar ones, as in the memory model");
    emulation_.add_to(flags);
  }

  bool take_program(const std::vector<std::string>& program) override {
    program_ = program;
    return true;
  }

  ExitCode run(Call& call) override {
    for (const auto& [flag, texts] :
         {std::pair("--size", &sizes_), std::pair("--scalar", &scalar_values_), std::pair("--bind", &bound_),
          std::pair("--expect", &expected_), std::pair("--save", &saved_)})
      refuse_name_twice(flag, *texts);
    if (!program_.empty()) return run_guest(call);
    if (!plan_.empty()) return emit(call);
    if (file_.empty())
      throw Error(ErrorKind::usage, "emulate: name a PTX file, like `tessera emulate kernel.ptx --launch launch.json`");
    if (validates_) return validate(call);
    if (launch_.empty())
      throw Error(ErrorKind::usage,
                  "emulate: --launch FILE says how to launch it; --emit-launch writes one for a plan");
    std::string ptx = read_limited(file_, kMaxPtxBytes);
    refuse_other_code(ptx, file_);
    LaunchFileDefaults defaults;
    defaults.arch = ptx_target(ptx);
    defaults.entries = entry_.empty() ? entries_of(ptx) : std::vector<std::string>{entry_};
    defaults.folder = std::filesystem::path(launch_).parent_path();
    LaunchFile launch = read_launch_file(parse_json(read_limited(launch_, kMaxLaunchBytes), launch_), defaults);
    if (!defaults.arch.empty() && launch.plan.arch != defaults.arch)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: the launch is for {}, {} for {}", launch_, launch.plan.arch, file_, defaults.arch));
    apply_flags(launch);
    EmulateOptions options;
    options.seed = static_cast<std::uint64_t>(seed_);
    options.checks_map_rules = !skips_rules_;
    const auto device = emulation_.open(call, launch.plan.arch, options.seed);
    options.num_sms = device->info().num_sms;
    EmulateRun run(std::move(launch), std::move(ptx), file_, options);
    Observation observation(emulation_);
    device->set_observer(observation.observer());
    const EmulateReport report = run.run(*device, emulation_.schedules());
    observation.finish();
    return print(call, *device, report, observation, device->take_times());
  }

 private:
  ExitCode run_guest(Call& call) {
    if (!file_.empty() || !launch_.empty() || emulation_.watches())
      throw Error(ErrorKind::usage, "emulate -- PROGRAM: takes no FILE, --launch, --stats, --trace or --timeline");
    program_flags_.seed = seed_;
    if (const auto gpu = emulation_.described_gpu(); gpu != nullptr && program_flags_.gpu.empty())
      if (program_flags_.arch.empty()) program_flags_.arch = emulator::arch_of(*gpu);
    ProgramReport report;
    try {
      report = run_program(call, program_, program_flags_, emulation_);
    } catch (const Error& error) {
      if (!call.is_json()) throw;
      call.warn(error.what());  // and stdout holds a document in any case
      report.problems.emplace_back(error.what());
      report.exit_code = error.kind() == ErrorKind::usage         ? kUsage
                         : error.kind() == ErrorKind::unsupported ? kUnsupported
                                                                  : kDevice;
    }
    if (call.is_json()) {
      OrderedJson json{{"pass", report.exit_code == 0}, {"exit_code", report.exit_code}, {"device", report.gpu},
                       {"hazards", report.hazards},     {"findings", report.findings},   {"problems", report.problems},
                       {"schedules", report.schedules}};
      if (!emulation_.time.empty()) json["predicted"] = report.predicted;
      call.print_json(json);
      return static_cast<ExitCode>(report.exit_code);
    }
    std::int64_t launches = 0;
    for (const OrderedJson& run : report.schedules) launches += run["launches"].get<std::int64_t>();
    call.note(fmt::format("tessera: {}: {} on {}, {}, {}, exit code {}", program_.front(),
                          counted(launches, "launch", "launches"), report.gpu.empty() ? "no GPU" : report.gpu,
                          counted(report.failures, "failure"), counted(report.hazards, "hazard"), report.exit_code));
    return static_cast<ExitCode>(report.exit_code);
  }

  std::vector<std::string> entries_of(const std::string& ptx) const {
    const emulator::syntax::Module module = emulator::parse_ptx(ptx, file_);
    std::vector<std::string> names;
    for (const emulator::syntax::Function& function : module.functions)
      if (function.is_entry) names.emplace_back(function.name);
    if (names.empty()) throw Error(ErrorKind::compile, fmt::format("{}: has no kernel (.entry)", file_));
    return names;
  }

  void apply_flags(LaunchFile& launch) const {
    const auto check_buffer = [&](const char* flag, const std::string& name) {
      const std::size_t i = index_of(launch.plan.buffers, name);
      if (i == launch.plan.buffers.size())
        throw Error(ErrorKind::usage, fmt::format("{} {}: the launch has no buffer of that name", flag, name));
      return i;
    };
    for (const std::string& text : sizes_) {
      const auto [name, value] = split_binding("--size", text, "N");
      launch.sizes[name] = read_whole("--size", value);
    }
    for (const std::string& text : scalar_values_) {
      const auto [name, value] = split_binding("--scalar", text, "X");
      if (index_of(launch.plan.scalars, name) == launch.plan.scalars.size())
        throw Error(ErrorKind::usage, fmt::format("--scalar {}: the launch has no scalar of that name", name));
      launch.scalars[name] = read_number("--scalar", value, -HUGE_VAL);
    }
    for (const std::string& text : bound_) {
      const auto [name, file] = split_binding("--bind", text, "FILE.npy");
      BufferBinding& binding = launch.buffers[check_buffer("--bind", name)];
      binding = {};
      binding.kind = BufferBinding::Kind::file;
      binding.file = file;
    }
    for (const std::string& text : expected_) {
      const auto [name, file] = split_binding("--expect", text, "FILE.npy");
      check_buffer("--expect", name);
      launch.expected[name].file = file;
    }
    for (auto& [name, expectation] : launch.expected) {
      if (!atol_.empty()) expectation.atol = read_number("--atol", atol_, 0);
      if (!rtol_.empty()) expectation.rtol = read_number("--rtol", rtol_, 0);
    }
    for (const std::string& text : saved_) {
      const auto [name, file] = split_binding("--save", text, "FILE.npy");
      check_buffer("--save", name);
      launch.saved[name] = file;
    }
  }

  ExitCode print(Call& call, const emulator::EmulatedDevice& device, const EmulateReport& report,
                 const Observation& observation, const std::vector<emulator::LaunchTime>& times) const {
    const std::int64_t hazards = hazards_of(report.findings);
    // Without values nothing can be said of outputs.
    const bool has_problems = !report.problems.empty() && !emulation_.skips_values;
    const bool pass = !report.is_stopped && !has_problems && !(emulation_.is_strict && hazards > 0);
    if (!pass) call.complain(why_failed(file_, report.findings, report.problems, emulation_.is_strict));
    if (call.is_json()) {
      OrderedJson findings = OrderedJson::array();
      for (const emulator::EmulatorFinding& finding : report.findings) findings.push_back(finding_json(finding));
      OrderedJson json{{"pass", pass},
                       {"device", device.info().name},
                       {"hazards", hazards},
                       {"findings", findings},
                       {"problems", report.problems},
                       {"outputs", report.outputs},
                       {"schedules", report.schedules}};
      if (emulation_.skips_values) json["problems"] = json["outputs"] = OrderedJson::array();
      if (!times.empty()) json["predicted"] = time_json(times);
      if (emulation_.shows_statistics) json["statistics"] = observation.json();
      call.print_json(json);
      return pass ? kOk : kWrong;
    }
    call.print(fmt::format("{} on {}: {}{}\n", file_, device.info().name, verdict_text(pass, hazards),
                           report.is_stopped ? ", the launch was stopped" : ""));
    for (const emulator::EmulatorFinding& finding : report.findings) call.print("  " + finding.to_string() + "\n");
    if (!emulation_.skips_values)
      for (const std::string& problem : report.problems) call.print("  " + problem + "\n");
    for (const OrderedJson& output : report.outputs)
      if (output.contains("checked") && output["mismatched"] == 0)
        call.print(fmt::format("  {}: {} elements as expected, largest difference {:.3g}\n",
                               output["name"].get<std::string>(), grouped(output["checked"].get<std::int64_t>()),
                               output["max_abs_error"].is_null() ? 0.0 : output["max_abs_error"].get<double>()));
    for (const std::string& note : report.notes) call.print("  note: " + note + "\n");
    call.print(schedule_lines(report.schedules));
    call.print(time_text(times));
    call.print(observation.text());
    return pass ? kOk : kWrong;
  }

  ExitCode validate(Call& call) const {
    const std::string ptx = read_limited(file_, kMaxPtxBytes);
    refuse_other_code(ptx, file_);
    const std::vector<std::string> kernels = emulator::validate_ptx(ptx, file_);
    if (call.is_json()) {
      call.print_json(OrderedJson{{"pass", true}, {"kernels", kernels}});
    } else {
      call.print(fmt::format("{}: {} kernel{}, every instruction known\n", file_, kernels.size(),
                             kernels.size() == 1 ? "" : "s"));
    }
    return kOk;
  }

  ExitCode emit(Call& call) const {
    const std::string text = plan_ == "-" ? read_text("/dev/stdin") : read_limited(plan_, kMaxLaunchBytes);
    std::vector<GivenSize> given;
    for (const std::string& size : sizes_) {
      const auto [name, value] = split_binding("--size", size, "N");
      given.push_back({name, read_whole("--size", value)});
    }
    const std::string made = json_text(make_launch_file(parse_json(text, plan_), given));
    if (output_.empty()) {
      call.print(made);
    } else {
      write_file(output_, made);
    }
    return kOk;
  }

  std::string file_, launch_, entry_, plan_, output_, atol_, rtol_;
  std::vector<std::string> sizes_, scalar_values_, bound_, expected_, saved_, program_;
  ProgramFlags program_flags_;
  std::int64_t seed_ = 1;
  bool skips_rules_ = false, validates_ = false;
  EmulatorFlags emulation_;
};

}  // namespace

std::unique_ptr<Command> make_emulate_command() { return std::make_unique<EmulateCommand>(); }

}  // namespace tessera::cli
