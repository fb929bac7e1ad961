// Warm-up and coverage: many Problems at once. Distinct kernels are counted before the first compile, so that progress
// has a total; a kernel is told apart by its name, which decides sources and launch (a test of the generator holds
// that).

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/default_arithmetic.h"
#include "runtime/worker_pool.h"
#include "tessera/internal/jit_state.h"
#include "tessera/internal/kernel_names.h"
#include "tessera/jit.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A list of Problems with each one's kernel, or why it has none. Kernels are planned where they are used: thousands of
/// plans would take more memory than all else.
struct PlannedList {
  std::vector<Problem> kernels;  ///< the first Problem of each
  std::vector<std::string> names;
  std::vector<std::ptrdiff_t> kernel_of;  ///< per Problem; -1: rejected
  std::vector<RejectedProblem> rejected;
};

/// Ends early, with the Problems so far, at a stop request.
PlannedList plan_all(std::span<const Problem> problems, int num_workers,
                     const std::function<void(const WarmCount&)>& on_count, const std::stop_token& stop = {}) {
  PlannedList list;
  list.kernel_of.reserve(problems.size());
  const auto report = [&](std::size_t done) {
    if (on_count)
      on_count({.problems = static_cast<std::int64_t>(done),
                .total = static_cast<std::int64_t>(problems.size()),
                .kernels = static_cast<std::int64_t>(list.kernels.size())});
  };
  struct Outcome {
    std::ptrdiff_t kernel;
    std::string reason;
  };
  std::unordered_map<Problem, Outcome, ProblemHash> seen;
  std::unordered_map<std::string, std::ptrdiff_t> by_kernel;
  // A kernel's name decides sources and launch; naming it costs a fraction of planning it.
  const auto outcome_of = [&](const Problem& problem, const KernelName& name) -> Outcome {
    if (!name.rejected.empty()) return {-1, name.rejected};
    const auto [slot, is_new] = by_kernel.try_emplace(name.kernel, static_cast<std::ptrdiff_t>(list.kernels.size()));
    if (is_new) {
      list.kernels.push_back(problem);
      list.names.push_back(name.kernel);
    }
    return {slot->second, {}};
  };
  for (std::size_t start = 0; start < problems.size(); start += kNamesAtOnce) {
    if (start > 0) report(start);
    const auto some = problems.subspan(start, std::min(kNamesAtOnce, problems.size() - start));
    std::vector<Problem> unseen;
    for (const Problem& problem : some)
      if (seen.try_emplace(problem, Outcome{-1, {}}).second) unseen.push_back(problem);
    const auto names = name_kernels(unseen, num_workers, stop);
    if (!names) return list;
    for (std::size_t i = 0; i < unseen.size(); ++i) seen[unseen[i]] = outcome_of(unseen[i], (*names)[i]);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Outcome& outcome = seen.at(some[i]);
      list.kernel_of.push_back(outcome.kernel);
      if (outcome.kernel < 0) list.rejected.push_back({start + i, outcome.reason});
    }
    if (stop.stop_requested()) return list;
  }
  report(problems.size());
  return list;
}

void take_report(WarmedKernel& warmed, const CacheEntry& entry) {
  warmed.compile_ms = entry.image.report.compile_ms;
  warmed.notes = entry.image.report.notes;
  for (const EntryReport& report : entry.image.report.entries) {
    warmed.registers = std::max(warmed.registers, report.registers);
    warmed.spill_bytes += report.spill_store_bytes + report.spill_load_bytes;
  }
}

}  // namespace

/// One run of warm(): the pool's workers take kernels by index until none is left or somebody asks them to stop.
class WarmRun {
 public:
  WarmRun(Jit& jit, Jit::State& state, const PlannedList& list, const WarmOptions& options, WarmReport& report)
      : jit_(jit), state_(state), list_(list), options_(options), report_(report) {}

  void run() {
    report_.entries.resize(list_.kernels.size());
    finished_.assign(list_.kernels.size(), false);
    const std::size_t done = for_each_index(
        list_.kernels.size(), options_.jobs > 0 ? options_.jobs : default_num_workers(),
        [this](std::size_t index) {
          if (warm_one(index, report_.entries[index])) finish(index);
        },
        options_.stop);
    report_.was_cancelled =
        done < list_.kernels.size() || std::find(finished_.begin(), finished_.end(), false) != finished_.end();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < finished_.size(); ++i) {
      if (!finished_[i]) continue;
      if (kept != i) report_.entries[kept] = std::move(report_.entries[i]);
      ++kept;
    }
    report_.entries.resize(kept);
  }

 private:
  // False: interrupted before it was done.
  bool warm_one(std::size_t index, WarmedKernel& warmed) {
    const Problem& problem = list_.kernels[index];
    warmed.op = operator_name(problem);
    warmed.arch = arch_of(problem).to_string();
    warmed.kernel = list_.names[index];
    try {
      const Plan plan = make_bare_plan(problem);
      warmed.smem_bytes = plan.smem_bytes;
      const SourceBundle bundle = jit_.bundle(plan);
      CacheRequest request = state_.request(plan, bundle);
      warmed.keys = request.keys;
      if (options_.dry_run) {
        const auto tier = jit_.cache().contains(request);
        warmed.was_hit = tier.has_value();
        warmed.tier = tier.value_or(CacheTier::compiled);
        return true;
      }
      request.stop = options_.stop;
      bool did_build = false;
      auto entry = options_.compiles ? jit_.cache().find(request) : jit_.cache().pull(request);
      if (entry == nullptr && !options_.compiles)
        throw Error(ErrorKind::io, "in no folder, and the remote cache does not have it");
      if (entry == nullptr) {
        request.source = state_.source(plan);
        entry = state_.find_or_build(request, bundle, {}, &did_build);
      }
      // What a folder had is not in the store yet, perhaps.
      if (jit_.options().remote.is_written && entry->tier != CacheTier::compiled && entry->tier != CacheTier::remote)
        jit_.cache().push(request);
      warmed.was_hit = !did_build;
      warmed.tier = did_build ? CacheTier::compiled : entry->tier;
      warmed.keys = entry->keys;
      warmed.is_stored = !entry->folder.empty();
      take_report(warmed, *entry);
    } catch (const WaitInterrupted&) {
      return false;
    } catch (const Error& error) {
      warmed.error = error.what();
      warmed.error_kind = error.kind();
      warmed.notes = error.notes();
    } catch (const std::exception& error) {  // out of memory, say: no word of the compiler's
      warmed.error = error.what();
      warmed.error_kind = ErrorKind::io;
    }
    return true;
  }

  void finish(std::size_t index) {
    const std::lock_guard lock(mutex_);
    const WarmedKernel& warmed = report_.entries[index];
    finished_[index] = true;
    ++done_;
    if (!warmed.error.empty()) {
      ++report_.failed;
    } else if (warmed.was_hit) {
      ++report_.hit;
    } else if (!options_.dry_run) {
      ++report_.compiled;
    }
    if (options_.on_kernel) options_.on_kernel(warmed);
    if (!options_.on_progress) return;
    const double seconds = seconds_since(start_);
    const auto total = static_cast<std::int64_t>(list_.kernels.size());
    options_.on_progress({.done = done_,
                          .total = total,
                          .seconds = seconds,
                          .seconds_left = seconds / static_cast<double>(done_) * static_cast<double>(total - done_),
                          .kernel = warmed.kernel});
  }

  Jit& jit_;
  Jit::State& state_;
  const PlannedList& list_;
  const WarmOptions& options_;
  WarmReport& report_;
  Clock::time_point start_ = Clock::now();
  std::mutex mutex_;  ///< guards the report's counters, done_, finished_ and the progress callback
  std::int64_t done_ = 0;
  std::vector<bool> finished_;
};

WarmReport Jit::warm(std::span<const Problem> problems, const WarmOptions& options) {
  const DefaultArithmetic arithmetic;
  const Clock::time_point start = Clock::now();
  WarmReport report;
  PlannedList list = plan_all(problems, options.jobs, options.on_count, options.stop);
  report.problems = static_cast<std::int64_t>(problems.size());
  report.kernels = static_cast<std::int64_t>(list.kernels.size());
  report.rejected = std::move(list.rejected);
  WarmRun(*this, *state_, list, options, report).run();
  report.was_cancelled = report.was_cancelled || list.kernel_of.size() < problems.size();
  report.seconds = seconds_since(start);
  return report;
}

std::vector<Coverage> Jit::check(std::span<const Problem> problems,
                                 const std::function<void(const WarmCount&)>& on_count, int jobs, CheckedTiers where) {
  const DefaultArithmetic arithmetic;
  const PlannedList list = plan_all(problems, jobs, on_count);
  std::vector<std::optional<CacheTier>> tiers(list.kernels.size());
  const auto request_of = [&](std::size_t i) {
    const Plan plan = make_bare_plan(list.kernels[i]);
    return state_->request(plan, state_->bundle(plan));
  };
  const int num_workers = jobs > 0 ? jobs : default_num_workers();
  if (where == CheckedTiers::folders) {
    for_each_index(list.kernels.size(), num_workers,
                   [&](std::size_t i) { tiers[i] = state_->cache.contains(request_of(i)); });
  } else {
    // A store is asked for many at a time, while other workers plan.
    constexpr std::size_t kAtOnce = 256;
    for_each_index((list.kernels.size() + kAtOnce - 1) / kAtOnce, num_workers, [&](std::size_t part) {
      const std::size_t first = part * kAtOnce, end = std::min(first + kAtOnce, list.kernels.size());
      std::vector<CacheRequest> requests;
      for (std::size_t i = first; i < end; ++i) {
        requests.push_back(request_of(i));
        requests.back().plan_json.clear();  // only the keys are asked for
      }
      const std::vector<std::optional<bool>> there = state_->cache.remote_contains(requests);
      for (std::size_t i = first; i < end; ++i) {
        if (!there[i - first]) throw Error(ErrorKind::io, "the remote cache could not say what it holds");
        if (*there[i - first]) tiers[i] = CacheTier::remote;
      }
    });
  }
  std::vector<Coverage> result(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    result[i].index = i;
    if (list.kernel_of[i] < 0) continue;
    const auto kernel = static_cast<std::size_t>(list.kernel_of[i]);
    result[i].kernel = list.names[kernel];
    result[i].tier = tiers[kernel];
  }
  for (const RejectedProblem& rejected : list.rejected) result[rejected.index].rejected = rejected.reason;
  return result;
}

}  // namespace tessera
