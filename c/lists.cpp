// Shape lists: warm and check, with the reports of the command. A list comes down to its distinct kernels, named so
// many at a time that one of any length takes the memory of its kernels alone.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <stop_token>
#include <unordered_map>

#include "base/launch_json.h"
#include "c/handles.h"
#include "tessera/internal/jit_state.h"
#include "tessera/internal/kernel_names.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/internal/problem_list.h"
#include "tessera/internal/report_json.h"

namespace tessera::c {

namespace {

/// Why a launch would refuse the sizes that a problem expects; empty: it would not, or none is given. Of sizes given in
/// part what follows from these.
std::string size_refusal(KernelSizes& sizes, const Problem& problem, const std::string& kernel) {
  const std::vector<GivenSize> given = expected_sizes(problem);
  if (given.empty()) return {};
  const LaunchSizes& launch = sizes.of(problem, kernel);
  try {
    return fmt::format("{}", fmt::join(launch.problems(launch.known(given)), "; "));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();  // an overflow on the way to a stride
  }
}

/// The distinct kernels of a list, each as the first problem that has it.
class ListedKernels {
 public:
  explicit ListedKernels(const char* shapes_json) : list_(parse_shape_list(shapes_json, "shapes")) {
    std::vector<Problem> batch;
    list_.for_each([&](const Problem& problem, std::size_t) {
      batch.push_back(problem);
      if (batch.size() == kNamesAtOnce) take(batch);
    });
    take(batch);
  }

  const std::vector<Problem>& problems() const { return problems_; }
  const std::vector<std::string>& names() const { return names_; }
  std::int64_t num_problems(std::size_t kernel) const { return num_problems_[kernel]; }
  std::int64_t count() const { return list_.count(); }
  std::size_t num_rejected() const { return rejected_.size(); }
  /// [{problem, place, reason}], as the command's.
  OrderedJson rejections() const {
    OrderedJson all = OrderedJson::array();
    for (const RejectedProblem& one : rejected_)
      all.push_back({{"problem", one.index},
                     {"place", list_.place(list_.product_of(static_cast<std::int64_t>(one.index)))},
                     {"reason", one.reason}});
    return all;
  }

 private:
  void take(std::vector<Problem>& batch) {
    const std::vector<KernelName> named = *name_kernels(batch, 0);
    for (std::size_t i = 0; i < batch.size(); ++i, ++seen_) {
      const std::string reason =
          named[i].rejected.empty() ? size_refusal(sizes_, batch[i], named[i].kernel) : named[i].rejected;
      if (!reason.empty()) {
        rejected_.push_back({seen_, reason});
        continue;
      }
      const auto [place, is_new] = by_name_.try_emplace(named[i].kernel, problems_.size());
      if (is_new) {
        problems_.push_back(batch[i]);
        names_.push_back(named[i].kernel);
        num_problems_.push_back(0);
      }
      ++num_problems_[place->second];
    }
    batch.clear();
  }

  ProblemList list_;
  KernelSizes sizes_;
  std::size_t seen_ = 0;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<Problem> problems_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> num_problems_;
  std::vector<RejectedProblem> rejected_;
};

WarmOptions warm_options(const tessera_warm_options& given, std::stop_source& stop) {
  if (given.jobs < 0) throw Error(ErrorKind::usage, fmt::format("jobs = {}: must be 0 or more", given.jobs));
  WarmOptions options;
  options.jobs = std::min(given.jobs, 1024);
  options.dry_run = given.dry_run != 0;
  options.stop = stop.get_token();
  if (given.on_progress != nullptr)
    options.on_progress = [given, &stop](const WarmProgress& at) {
      const tessera_progress progress{.struct_size = sizeof(tessera_progress),
                                      .done = at.done,
                                      .total = at.total,
                                      .seconds = at.seconds,
                                      .seconds_left = at.seconds_left,
                                      .kernel = at.kernel.c_str()};
      if (given.on_progress(given.user_data, &progress) != 0) stop.request_stop();
    };
  return options;
}

OrderedJson warm_report(const ListedKernels& kernels, const WarmReport& report) {
  OrderedJson entries = OrderedJson::array();
  for (const WarmedKernel& kernel : report.entries) entries.push_back(warmed_kernel_json(kernel));
  return {{"problems", kernels.count()},
          {"kernels", report.kernels},
          {"compiled", report.compiled},
          {"hit", report.hit},
          {"failed", report.failed},
          {"rejected", kernels.num_rejected()},
          {"seconds", report.seconds},
          {"entries", std::move(entries)},
          {"rejections", kernels.rejections()},
          {"cancelled", report.was_cancelled}};
}

OrderedJson check_report(const ListedKernels& kernels, const std::vector<Coverage>& coverage) {
  std::int64_t covered = 0;
  OrderedJson missing = OrderedJson::array();
  for (std::size_t i = 0; i < coverage.size(); ++i) {
    const Problem& problem = kernels.problems()[i];
    if (coverage[i].tier)
      covered += kernels.num_problems(i);
    else
      missing.push_back({{"op", operator_name(problem)},
                         {"arch", arch_of(problem).to_string()},
                         {"entry", kernels.names()[i]},
                         {"warm", warm_command(problem)}});
  }
  return {{"covered", covered},
          {"missing", std::move(missing)},
          {"problems", kernels.count()},
          {"kernels", kernels.names().size()},
          {"rejected", kernels.num_rejected()},
          {"rejections", kernels.rejections()}};
}

}  // namespace

}  // namespace tessera::c

using namespace tessera;

tessera_status tessera_jit_warm(tessera_jit* jit, const char* shapes_json, const tessera_warm_options* options,
                                char** report_json) {
  return c::guarded([&] {
    c::require(jit, "jit");
    c::require(shapes_json, "shapes_json");
    c::require(report_json, "report_json");
    const tessera_warm_options given =
        options == nullptr ? tessera_warm_options{} : c::sized(options, "tessera_warm_options");
    std::stop_source stop;
    const WarmOptions warm = c::warm_options(given, stop);
    const c::ListedKernels kernels(shapes_json);
    const WarmReport report = jit->shared->jit.warm(kernels.problems(), warm);
    *report_json = c::new_text(json_text(c::warm_report(kernels, report)));
  });
}

tessera_status tessera_jit_check(tessera_jit* jit, const char* shapes_json, char** report_json) {
  return c::guarded([&] {
    c::require(jit, "jit");
    c::require(shapes_json, "shapes_json");
    c::require(report_json, "report_json");
    const c::ListedKernels kernels(shapes_json);
    *report_json = c::new_text(json_text(c::check_report(kernels, jit->shared->jit.check(kernels.problems()))));
  });
}
