// tessera warm: compile what a list of problems needs into the cache. Interrupted, it keeps what is compiled, so the
// next call goes on from there.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/call.h"
#include "cli/planned_list.h"
#include "cli/shard.h"
#include "tessera/cache_admin.h"
#include "tessera/error.h"
#include "tessera/internal/report_json.h"

namespace tessera::cli {

namespace {

class WarmCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera warm SHAPES.json [flags]\n       tessera warm OP [selectors] [flags]",
        "tessera warm: compile kernels into the cache",
        "Counts the distinct kernels first, then compiles in parallel those that no cache tier has. Needs NVRTC, no\n"
        "GPU and no driver. An interrupted call keeps what is compiled; run it again to go on. A member of a cross\n"
        "product that no kernel exists for is reported; an entry of a shape list that names one such kernel fails.\n",
        {"tessera warm shapes.json --jobs 8", "tessera warm fmha --head-dim 64,128,256 --mask none,causal --dry-run",
         "tessera warm shapes.json --cache-dir build/cubins --json > report.json",
         "tessera warm shapes.json --shard 0/4 --remote http://store/tessera --remote-write"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("SUBJECT", subject_);
    flags.group("Flags");
    flags.toggle("--dry-run", is_dry_run_, "count problems and distinct kernels, compile nothing");
    flags.toggle("--strict", is_strict_, "fail (3) when any member of a cross product has no kernel");
    shard_.add_to(flags);
    size_flags_.add_to(flags);
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    if (subject_.empty())
      throw Error(ErrorKind::usage, "warm: name a shape list or an operator, like `tessera warm shapes.json`");
    size_flags_.parse();
    shard_.parse();
    const Clock::time_point start = Clock::now();
    WarmOptions options;
    options.jobs = call.jobs();
    options.dry_run = is_dry_run_;
    if (call.host().catch_interrupt) options.stop = call.host().catch_interrupt();
    ProblemList list;
    SoFar so_far;
    LastWords last_words(call.host(), [&] { print_so_far(call, so_far, start); });
    list = read_problems(subject_, selectors_);
    size_flags_.check(list);
    so_far.set([&] { so_far.list = &list; });
    KernelsOfList kernels =
        distinct_kernels(call, list, sizes_, options.stop, [&] { so_far.set([&] { ++so_far.report.kernels; }); });
    shard_.keep(call, kernels);
    std::vector<Rejected>& rejected = kernels.rejected;
    so_far.set([&] { so_far.rejected = &rejected; });
    options.on_count = [&](const WarmCount& count) {
      if (count.problems == count.total)
        call.progress(
            fmt::format("{} for {}", counted(count.kernels, "distinct kernel"), counted(list.count(), "problem")));
    };
    options.on_kernel = [&](const WarmedKernel& kernel) { so_far.set([&] { so_far.add(kernel, is_dry_run_); }); };
    options.on_progress = [&](const WarmProgress& p) {
      call.progress(fmt::format("[{}/{}] {}, {} left  {}", p.done, p.total, duration(p.seconds),
                                duration(p.seconds_left), p.kernel));
    };
    const CacheWatch watch(call.jit().cache().options(), !is_dry_run_ && !kernels.problems.empty());
    WarmReport report = call.jit().warm(kernels.problems, options);
    const std::vector<CacheFault> lost = watch.lost();
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();  // reading and checking included
    report.was_cancelled = report.was_cancelled || !kernels.is_whole;
    last_words.withdraw();
    call.clear_progress();
    for (const RejectedProblem& one : report.rejected) rejected.push_back({kernels.index_of[one.index], one.reason});
    std::sort(rejected.begin(), rejected.end(), [](const Rejected& a, const Rejected& b) { return a.index < b.index; });
    print(call, list, report, rejected, sizes_.partly_checked());
    for (const CacheFault& fault : lost) call.complain(fault.to_string());
    const bool is_push_lost = call.jit().cache().stats().remote_failures > 0;
    if (is_push_lost) call.complain("not every kernel is in the remote cache");
    const ExitCode ends = code(list, report, rejected, !lost.empty() || is_push_lost);
    if (ends == kUnsupported && !rejected.empty()) complain_of_rejected(call, rejected.size(), rejected.front().reason);
    return ends;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// What a report has to say when an interrupt comes.
  struct SoFar {
    std::mutex mutex;
    const ProblemList* list = nullptr;
    WarmReport report;
    const std::vector<Rejected>* rejected = nullptr;

    template <class Change>
    void set(const Change& change) {
      const std::lock_guard lock(mutex);
      change();
    }
    void add(const WarmedKernel& kernel, bool is_dry_run) {
      report.entries.push_back(kernel);
      if (!kernel.error.empty()) {
        ++report.failed;
      } else if (kernel.was_hit) {
        ++report.hit;
      } else if (!is_dry_run) {
        ++report.compiled;
      }
    }
  };

  // The process ends after this: the lock is kept, so that no kernel is finished without being reported.
  void print_so_far(Call& call, SoFar& so_far, Clock::time_point start) const {
    so_far.mutex.lock();
    so_far.report.was_cancelled = true;
    so_far.report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    try {
      call.clear_progress();
      const ProblemList none;
      const std::vector<Rejected> nothing;
      print(call, so_far.list == nullptr ? none : *so_far.list, so_far.report,
            so_far.rejected == nullptr ? nothing : *so_far.rejected, {});
      std::fflush(call.host().out);
      std::fflush(call.host().err);
    } catch (const std::exception&) {
    } catch (const BrokenPipe&) {
    }
  }

  // Compiled, and lost when this process ends: a warm that leaves nothing behind has failed.
  std::int64_t unstored(const WarmReport& report) const {
    if (is_dry_run_) return 0;
    return std::count_if(report.entries.begin(), report.entries.end(),
                         [](const WarmedKernel& kernel) { return kernel.error.empty() && !kernel.is_stored; });
  }

  ExitCode code(const ProblemList& list, const WarmReport& report, const std::vector<Rejected>& rejected,
                bool is_folder_lost) const {
    if (report.was_cancelled) return kInterrupted;
    ExitCode gravest = is_folder_lost || unstored(report) > 0 ? kDevice : kOk;
    for (const WarmedKernel& kernel : report.entries)
      if (!kernel.error.empty()) gravest = graver(gravest, exit_code_of(kernel.error_kind));
    if (gravest != kOk) return gravest;
    return rejection_code(list, rejected, is_strict_);
  }

  void print(Call& call, const ProblemList& list, const WarmReport& report, const std::vector<Rejected>& rejected,
             const std::string& partly_checked) const {
    report_rejected(call, list, rejected);
    if (!partly_checked.empty()) call.note(partly_checked);
    if (const std::int64_t count = unstored(report); count > 0)
      call.complain(fmt::format("{} in no cache folder: {}", counted(count, "kernel is", "kernels are"),
                                call.jit().cache().options().user_folder.empty()
                                    ? "no absolute XDG_CACHE_HOME and no HOME is set; name one with --cache-dir"
                                    : fmt::format("none could take {}", count == 1 ? "it" : "them")));
    for (const WarmedKernel& kernel : report.entries) {
      if (kernel.error.empty()) continue;
      const bool is_named = kernel.error.starts_with(kernel.kernel);  // the compiler's errors begin so
      call.complain(fmt::format("failed: {}{}", is_named ? "" : kernel.kernel + ": ", kernel.error));
      for (const std::string& note : kernel.notes) call.note(indented(note));
    }
    if (call.is_json()) return print_json(call, list, report, rejected);
    for (const WarmedKernel& kernel : report.entries) {
      if (!kernel.error.empty()) continue;
      if (is_dry_run_) {
        call.print(fmt::format("{:<8} {}\n", kernel.was_hit ? "hit" : "miss", kernel.kernel));
      } else {
        call.print(fmt::format("{:<8} {:>5.0f} ms {:>4} registers {:>3} spilled {:>7} smem  {}\n",
                               kernel.was_hit ? "hit" : "compiled", kernel.compile_ms, kernel.registers,
                               kernel.spill_bytes, kernel.smem_bytes, kernel.kernel));
      }
      for (const std::string& note : kernel.notes) call.note(indented(note));
    }
    call.print(fmt::format("{}, {}: {} compiled, {} in the cache, {} failed, {} rejected, {}{}\n",
                           counted(list.count(), "problem"), counted(report.kernels, "distinct kernel"),
                           report.compiled, report.hit, report.failed,
                           grouped(static_cast<std::int64_t>(rejected.size())), duration(report.seconds),
                           report.was_cancelled ? "; interrupted, run it again to go on" : ""));
  }

  static void print_json(const Call& call, const ProblemList& list, const WarmReport& report,
                         const std::vector<Rejected>& rejected) {
    OrderedJson entries = OrderedJson::array();
    for (const WarmedKernel& kernel : report.entries) entries.push_back(warmed_kernel_json(kernel));
    JsonStream json(call);
    json.member("problems", list.count());
    json.member("kernels", report.kernels);
    json.member("compiled", report.compiled);
    json.member("hit", report.hit);
    json.member("failed", report.failed);
    json.member("rejected", rejected.size());
    json.member("seconds", report.seconds);
    json.member("entries", entries);
    print_rejections(json, list, rejected);
    json.member("cancelled", report.was_cancelled);
    json.end();
  }

  std::string subject_;
  bool is_dry_run_ = false, is_strict_ = false;
  SelectorFlags selectors_;
  SizeFlags size_flags_;
  ShardFlags shard_;
  SizeCheck sizes_{size_flags_};
};

}  // namespace

std::unique_ptr<Command> make_warm_command() { return std::make_unique<WarmCommand>(); }

}  // namespace tessera::cli
