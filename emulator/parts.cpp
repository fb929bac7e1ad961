#include "emulator/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>

#include "base/quiet_thread.h"
#include "emulator/findings/schedule_clues.h"
#include "emulator/scheduler.h"

namespace tessera::emulator {
namespace {

constexpr std::uint64_t kMostParts = kMostHostThreads;
/// What a grid that is worked off sooner is not worth a thread for.
constexpr double kAloneSeconds = 200e-6;

std::uint64_t clusters_of(const LaunchShape& shape) {
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < 3; ++i) count *= shape.grid[i] / shape.cluster[i];
  return count;
}

bool names(const Instruction& in, std::string_view word) { return in.opcode.find(word) != std::string_view::npos; }
bool starts(const Instruction& in, std::string_view word) { return in.opcode.starts_with(word); }

/// An atomic operation on global memory (perhaps: a generic address) whose order among others of its kind shows
/// nowhere. Empty: it does; else its kind.
std::string_view unordered_kind(const Entry& entry, const Instruction& in) {
  const auto pc = static_cast<std::uint32_t>(&in - entry.code.data());
  if (starts(in, "atom.") && !std::binary_search(entry.unread_atomics.begin(), entry.unread_atomics.end(), pc))
    return {};
  if (names(in, ".release") || names(in, ".acq") || names(in, ".f16") || names(in, ".bf16") || names(in, ".f32") ||
      names(in, ".f64"))
    return {};
  for (const std::string_view kind : {".add.", ".min.", ".max.", ".and.", ".or.", ".xor."})
    if (names(in, kind)) return kind;
  return {};
}

/// The instruction lets CTAs of different clusters speak to each other, or to the host.
bool is_speech(const Instruction& in) {
  if (starts(in, "clusterlaunchcontrol") || starts(in, "multimem")) return true;
  if (starts(in, "call")) return names(in, "malloc") || names(in, "free");
  if (starts(in, "cp.reduce") && names(in, ".global")) return true;
  if (starts(in, "membar")) return !names(in, ".cta");
  if (starts(in, "fence") && !starts(in, "fence.proxy")) return names(in, ".gpu") || names(in, ".sys");
  if (names(in, ".shared")) return false;
  return (starts(in, "ld.") || starts(in, "st.")) &&
         (names(in, ".volatile") || names(in, ".relaxed") || names(in, ".acquire") || names(in, ".release") ||
          names(in, ".mmio") || names(in, ".cv."));
}

/// One part, while it runs and after.
struct Part {
  std::string printed;
  LaunchStatistics statistics;
  std::vector<EmulatorFinding> findings;
  std::vector<ScheduleClue> clues;
  std::exception_ptr problem;
};

class Run {
 public:
  Run(const Program& program, const Entry& entry, GlobalMemory& memory, const LaunchShape& shape,
      const LaunchOptions& options, const std::vector<std::byte>& parameters)
      : program_(program),
        entry_(entry),
        memory_(memory),
        shape_(shape),
        options_(options),
        parameters_(parameters),
        clusters_(clusters_of(shape)),
        parts_(std::min(clusters_, kMostParts)) {
    common_.start_seconds = seconds_now();
  }

  int work(int threads) {
    while (seconds_now() - common_.start_seconds < kAloneSeconds)
      if (!work_on_next()) return 1;
    std::vector<std::thread> others;
    const std::uint64_t left = parts_.size() - std::min<std::uint64_t>(next_, parts_.size());
    try {
      while (others.size() + 1 < static_cast<std::size_t>(threads) && others.size() < left)
        others.push_back(quiet_thread<std::thread>([this] { work_off(); }));
    } catch (const std::system_error&) {  // those that there are do it
    }
    work_off();
    for (std::thread& other : others) other.join();
    return static_cast<int>(others.size()) + 1;
  }

  PartsResult join() {
    PartsResult result;
    FindingLog findings;
    for (std::uint64_t i = 0; i < parts_.size() && i <= common_.failed; ++i) {
      Part& part = parts_[i];
      if (part.problem) std::rethrow_exception(part.problem);
      print(part.printed);
      for (EmulatorFinding& finding : part.findings) findings.add(std::move(finding));
      for (ScheduleClue& clue : part.clues) result.clues.push_back(std::move(clue));
      result.statistics.warp_instructions += part.statistics.warp_instructions;
      result.statistics.async_operations += part.statistics.async_operations;
      result.statistics.async_bytes.add(part.statistics.async_bytes);
    }
    result.findings = findings.all();
    result.statistics.seconds = seconds_now() - common_.start_seconds;
    return result;
  }

 private:
  void print(const std::string& text) const {
    if (text.empty()) return;
    if (options_.print)
      options_.print(text);
    else
      std::fwrite(text.data(), 1, text.size(), stdout);
  }

  void work_off() {
    while (work_on_next()) {
    }
  }

  bool work_on_next() {
    const std::uint64_t index = next_++;
    if (index >= parts_.size()) return false;
    if (index > common_.failed) return true;
    Part& part = parts_[index];
    try {
      run(part, index);
    } catch (...) {
      part.problem = std::current_exception();
      note_failure(index);
    }
    return true;
  }

  void run(Part& part, std::uint64_t index) {
    LaunchOptions options = options_;
    options.parts = &common_;
    options.part = index;
    options.print = [&part](std::string_view text) { part.printed += text; };
    Launch launch(program_, entry_, memory_, shape_, options, parameters_);
    launch.next_cluster = clusters_ * index / parts_.size();
    launch.num_clusters = clusters_ * (index + 1) / parts_.size();
    launch.run();
    common_.instructions += launch.time - launch.counted;
    part.statistics = launch.statistics;
    part.findings = launch.findings.all();
    part.clues = launch.clues->all();
    if (launch.findings.has_failure()) note_failure(index);
  }

  void note_failure(std::uint64_t index) {
    std::uint64_t first = common_.failed;
    while (index < first && !common_.failed.compare_exchange_weak(first, index)) {
    }
  }

  const Program& program_;
  const Entry& entry_;
  GlobalMemory& memory_;
  const LaunchShape& shape_;
  const LaunchOptions& options_;
  const std::vector<std::byte>& parameters_;
  const std::uint64_t clusters_;
  std::vector<Part> parts_;
  std::atomic<std::uint64_t> next_{0};
  Parts common_;
};

}  // namespace

std::string why_whole(const std::string& speech, const LaunchShape& shape, const LaunchOptions& options) {
  if (options.detects_races) return "the race detector looks at all clusters together";
  if (options.schedule == Schedule::weak) return "the weak schedule looks at the memory of all clusters";
  if (options.observer != nullptr) return "statistics and traces are of all clusters together";
  if (clusters_of(shape) < 2) return "there is one cluster";
  return speech;
}

std::string speech_of(const Entry& entry) {
  std::string_view atomics;
  for (const Instruction& in : entry.code) {
    bool is_whole = is_speech(in);
    if ((starts(in, "atom.") || starts(in, "red.")) && !names(in, ".shared")) {
      const std::string_view kind = unordered_kind(entry, in);
      is_whole = kind.empty() || (!atomics.empty() && kind != atomics);
      atomics = kind;
    }
    if (is_whole) return fmt::format("clusters may speak to each other (PTX line {}: {})", in.line, in.opcode);
  }
  return {};
}

PartsResult run_in_parts(const Program& program, const Entry& entry, GlobalMemory& memory, const LaunchShape& shape,
                         const LaunchOptions& options, const std::vector<std::byte>& parameters, int threads) {
  Run run(program, entry, memory, shape, options, parameters);
  const int used = run.work(threads);
  PartsResult result = run.join();
  result.statistics.threads = used;
  return result;
}

}  // namespace tessera::emulator
