#include "cli/cache_remote.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/planned_list.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

RemoteOptions needed_remote(Call& call, const char* action) {
  RemoteOptions remote = call.options().remote;
  if (remote.url.empty())
    throw Error(ErrorKind::usage, fmt::format("cache {}: there is no remote cache: give --remote URL", action));
  return remote;
}

}  // namespace

OrderedJson remote_report(Call& call) {
  const RemoteOptions remote = call.options().remote;
  if (remote.url.empty()) return nullptr;
  CacheRequest request;
  request.keys.source = std::string(64, '0');
  const bool answers = call.jit().cache().remote_contains(request).has_value();
  const bool has_keys = remote.url.starts_with("s3:") && !remote.aws_access_key_id.empty();
  return {{"url", remote.url},
          {"answers", answers},
          {"is_written", remote.is_written},
          {"has_credentials", !remote.credentials.empty() || has_keys},
          {"signs", !remote.signing_key.empty()},
          {"wants_signatures", !remote.trusted_keys.empty()}};
}

std::string remote_line(const OrderedJson& report) {
  const auto is = [&](const char* key) { return report[key].get<bool>(); };
  return fmt::format("{}: {}, {}{}{}{}", report["url"].get<std::string>(),
                     is("answers") ? "answers" : "does not answer", is("is_written") ? "written" : "read only",
                     is("has_credentials") ? ", with credentials" : "", is("signs") ? ", entries are signed" : "",
                     is("wants_signatures") ? ", only signed entries are loaded" : "");
}

ExitCode push_cache_entries(Call& call, const CacheFilter& filter) {
  needed_remote(call, "push");
  CacheOptions options = call.jit().cache().options();
  options.remote.is_written = true;  // that is what was asked for
  Cache cache(options);
  const PushResult result = push_cache(cache, filter, call.jobs());
  const auto of = [](std::int64_t count) { return counted(count, "entry", "entries"); };
  for (const CacheFault& fault : result.faults) call.complain(fault.to_string());
  if (result.damaged > 0)
    call.complain(fmt::format("{} not pushed: damaged (see `tessera cache verify`)", of(result.damaged)));
  if (result.failed > 0)
    call.complain(fmt::format("{} not pushed: the remote cache did not take them", of(result.failed)));
  if (call.is_json()) {
    call.print_json({{"entries", result.entries},
                     {"stored", result.stored},
                     {"present", result.present},
                     {"damaged", result.damaged},
                     {"failed", result.failed}});
  } else {
    call.print(fmt::format("{}: {} stored, {} there already, {} damaged, {} failed\n", of(result.entries),
                           result.stored, result.present, result.damaged, result.failed));
  }
  if (result.failed > 0 || !result.faults.empty()) return kDevice;
  return result.damaged > 0 ? kWrong : kOk;
}

ExitCode pull_cache_entries(Call& call, const std::string& subject) {
  needed_remote(call, "pull");
  const SelectorFlags selectors;
  const SizeFlags size_flags;
  const ProblemList list = read_problems(subject, selectors);
  SizeCheck sizes(size_flags);
  WarmOptions options;
  options.jobs = call.jobs();
  options.compiles = false;
  if (call.host().catch_interrupt) options.stop = call.host().catch_interrupt();
  const KernelsOfList kernels = distinct_kernels(call, list, sizes, options.stop);
  options.on_progress = [&](const WarmProgress& p) {
    call.progress(fmt::format("[{}/{}] {} left  {}", p.done, p.total, duration(p.seconds_left), p.kernel));
  };
  const CacheWatch watch(call.jit().cache().options(), !kernels.problems.empty());
  const WarmReport report = call.jit().warm(kernels.problems, options);
  const std::vector<CacheFault> lost = watch.lost();
  call.clear_progress();
  report_rejected(call, list, kernels.rejected);
  std::int64_t pulled = 0, unstored = 0;
  OrderedJson missing = OrderedJson::array();
  for (const WarmedKernel& kernel : report.entries) {
    if (!kernel.error.empty()) missing.push_back(kernel.kernel);
    pulled += kernel.error.empty() && kernel.tier == CacheTier::remote;
    unstored += kernel.error.empty() && !kernel.is_stored;
  }
  if (unstored > 0)
    call.complain(fmt::format("{} in no cache folder: none could take {}",
                              counted(unstored, "kernel is", "kernels are"), unstored == 1 ? "it" : "them"));
  for (const CacheFault& fault : lost) call.complain(fault.to_string());
  if (call.is_json()) {
    call.print_json({{"kernels", report.kernels},
                     {"pulled", pulled},
                     {"present", report.hit - pulled},
                     {"missing", missing},
                     {"seconds", report.seconds}});
  } else {
    for (const OrderedJson& kernel : missing) call.print(fmt::format("missing  {}\n", kernel.get<std::string>()));
    call.print(fmt::format("{}: {} pulled, {} there already, {} missing, {}\n",
                           counted(report.kernels, "distinct kernel"), pulled, report.hit - pulled, missing.size(),
                           duration(report.seconds)));
  }
  if (report.was_cancelled || !kernels.is_whole) return kInterrupted;
  const bool is_unknown = call.jit().cache().stats().remote_errors > 0 && !missing.empty();
  if (is_unknown) call.complain("the remote cache could not say of every kernel whether it has it");
  if (is_unknown || unstored > 0 || !lost.empty()) return kDevice;
  if (!missing.empty()) {
    call.complain(fmt::format("{} of {}: not in the remote cache", missing.size(), counted(report.kernels, "kernel")));
    return kWrong;
  }
  return rejection_code(list, kernels.rejected, false);
}

}  // namespace tessera::cli
