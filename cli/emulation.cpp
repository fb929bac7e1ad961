#include "cli/emulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/call.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::cli {

using emulator::Schedule;

void EmulatorFlags::add_to(FlagSet& flags) {
  flags.group("Emulator");
  flags.text(
      "--schedule", "WORD", schedule,
      "who runs when: fair (default), eager, lazy, adversarial, split, weak, or all of them, one after the other");
  flags.toggle("--races", detects_races, "report accesses that nothing orders; up to five times slower");
  flags.toggle("--strict", is_strict,
               "hazards fail the call too; looks for races, as --races, and for registers that nobody wrote");
  flags.number("--max-instructions", "N", max_instructions, 1,
               "stop a launch after this many warp instructions (default: 2^40)");
  flags.number("--max-seconds", "N", max_seconds, 0, "stop a launch after this time (default: 600); 0: never");
  flags.number("--sms", "N", num_sms, 1,
               "multiprocessors of the emulated GPU, one CTA on each at a time (default: 4; of a program the GPU's)");
  flags.number(
      "--cpu-threads", "N", threads, 1,
      "threads of the CPU for grids whose clusters do not speak to each other (default: 1; of a program all cores)");
  flags.toggle("--stats", shows_statistics, "count instructions, bytes, bank conflicts, matrix work and waits");
  flags.text("--trace", "FILE", trace, "write a line for every executed instruction (/dev/stdout: among the results)");
  flags.text("--timeline", "FILE", timeline, "write a trace of warps and asynchronous operations for Perfetto");
  flags.text("--time", "GPU", time,
             "predict how long launches take there, by docs/time.md: h200, or a description's file (JSON)");
  flags.toggle("--no-values", skips_values,
               "with --time: nothing is computed, some clusters run, and time alone is told");
}

std::vector<Schedule> EmulatorFlags::schedules() const {
  std::vector<Schedule> found;
  for (const Schedule value : emulator::kAllSchedules)
    if (schedule == "all" || schedule == to_string(value)) found.push_back(value);
  if (found.empty())
    index_of_word("--schedule", schedule, {"fair", "eager", "lazy", "adversarial", "split", "weak", "all"});
  return found;
}

std::shared_ptr<const emulator::GpuTime> EmulatorFlags::described_gpu() const {
  if (skips_values && time.empty()) throw Error(ErrorKind::usage, "--no-values: is for --time GPU");
  if (time.empty()) return nullptr;
  if (schedule != "fair") throw Error(ErrorKind::usage, "--schedule: with --time who runs when is by time");
  if (threads > 1) throw Error(ErrorKind::usage, "--cpu-threads: with --time launches run on one thread");
  return emulator::find_gpu_time(time);
}

/// Code for sm_90a is for that target alone, for sm_100f for its family; PTX without a suffix is compiled for later
/// ones.
static bool can_be_compiled_for(Arch gpu, Arch target) {
  if (target.suffix == 0) return target.number <= gpu.number;
  return runs_on(target, gpu.compute_major(), gpu.compute_minor());
}

std::unique_ptr<emulator::EmulatedDevice> EmulatorFlags::open(const Call& call, const std::string& arch,
                                                              std::uint64_t seed) const {
  const std::optional<Arch> target = parse_arch(arch);
  if (!target) throw Error(ErrorKind::unsupported, fmt::format("{}: is no target like sm_90a, sm_100f or sm_80", arch));
  emulator::DeviceOptions options;
  options.arch = arch;
  options.seed = seed;
  options.schedule = schedules().front();
  options.max_warp_instructions = static_cast<std::uint64_t>(max_instructions);
  options.max_seconds = static_cast<double>(max_seconds);
  options.detects_races = detects_races || is_strict;
  options.detects_unwritten_registers = is_strict;
  options.threads = static_cast<int>(std::clamp<std::int64_t>(threads, 1, emulator::kMostHostThreads));
  if (const auto gpu = described_gpu(); gpu != nullptr) {
    if (const auto own = parse_arch(emulator::arch_of(*gpu)); !own || !can_be_compiled_for(*own, *target))
      throw Error(ErrorKind::usage, fmt::format("--time {}: {} runs {}, and the code is for {}", time,
                                                emulator::name_of(*gpu), emulator::arch_of(*gpu), arch));
    options.time = gpu;
    options.skips_values = skips_values;
    options.num_sms = emulator::sms_of(*options.time);
  }
  if (num_sms != 0) options.num_sms = static_cast<int>(std::min<std::int64_t>(num_sms, 4096));
  std::FILE* const prints = call.is_json() ? call.host().err : call.host().out;
  options.print = [prints](std::string_view text) { std::fwrite(text.data(), 1, text.size(), prints); };
  return std::make_unique<emulator::EmulatedDevice>(options);
}

bool merge_findings(std::vector<emulator::EmulatorFinding>& all, std::vector<emulator::EmulatorFinding> found) {
  bool has_failure = false;
  for (emulator::EmulatorFinding& finding : found) {
    has_failure = has_failure || finding.is_failure;
    const auto known = std::find_if(all.begin(), all.end(), [&](const emulator::EmulatorFinding& seen) {
      const bool is_same_place =
          finding.source_line > 0 ? seen.source_place == finding.source_place : seen.ptx_line == finding.ptx_line;
      return seen.name == finding.name && seen.entry == finding.entry && is_same_place;
    });
    if (known == all.end())
      all.push_back(std::move(finding));
    else
      known->count += finding.count;
  }
  return has_failure;
}

std::int64_t hazards_of(const std::vector<emulator::EmulatorFinding>& findings) {
  return std::count_if(findings.begin(), findings.end(),
                       [](const emulator::EmulatorFinding& finding) { return !finding.is_failure; });
}

std::string verdict_text(bool pass, std::int64_t hazards) {
  const char* const word = pass ? "pass" : "FAIL";
  return hazards == 0 ? word : fmt::format("{}, {} hazard{}", word, hazards, hazards == 1 ? "" : "s");
}

std::string why_failed(const std::string& what, const std::vector<emulator::EmulatorFinding>& findings,
                       const std::vector<std::string>& problems, bool is_strict) {
  std::vector<std::string> reasons, hazards;
  for (const emulator::EmulatorFinding& finding : findings)
    (finding.is_failure ? reasons : hazards).push_back(finding.to_string());
  reasons.insert(reasons.end(), problems.begin(), problems.end());
  if (is_strict) reasons.insert(reasons.end(), hazards.begin(), hazards.end());
  if (reasons.empty()) reasons.emplace_back("the launch was stopped");
  const std::string others = reasons.size() > 1 ? fmt::format(" (and {} more)", reasons.size() - 1) : "";
  // A deadlock goes on with a line for each warp that waits.
  return fmt::format("failed: {}: {}{}", what, reasons.front().substr(0, reasons.front().find('\n')), others);
}

void add_threads(OrderedJson& schedule, const emulator::LaunchStatistics& statistics) {
  if (statistics.threads > 1) schedule["threads"] = statistics.threads;
  if (!statistics.why_one_thread.empty()) schedule["why_one_thread"] = statistics.why_one_thread;
}

std::string schedule_lines(const OrderedJson& schedules) {
  std::string lines;
  for (const OrderedJson& run : schedules) {
    lines += fmt::format(
        "  schedule {}, seed {}: {} warp instructions in {:.2f} s on {}\n", run["schedule"].get<std::string>(),
        run["seed"].get<std::int64_t>(), grouped(run["warp_instructions"].get<std::int64_t>()),
        run["seconds"].get<double>(),
        run.contains("threads") ? fmt::format("{} threads of the CPU", run["threads"].get<int>()) : "the CPU");
    if (run.contains("why_one_thread"))
      lines += fmt::format("    on one thread: {}\n", run["why_one_thread"].get<std::string>());
  }
  return lines;
}

bool runs_code(const DeviceInfo& device, const std::string& arch) {
  const std::optional<Arch> target = parse_arch(arch);
  return target && runs_on(*target, device.compute_major, device.compute_minor);
}

}  // namespace tessera::cli
