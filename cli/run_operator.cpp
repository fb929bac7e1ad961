// The operators that `run` and `tune` know, and the sizes of a launch of theirs.
#include "cli/run_operator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::cli {

std::unique_ptr<RunOperator> make_run_operator(std::string_view op) {
  return op == "fmha"     ? make_run_fmha()
         : op == "gemm"   ? make_run_gemm()
         : op == "copy2d" ? make_run_copy2d()
                          : make_run_block_scale(op);
}

namespace {

/// Pitches that break no rule about them alone, in place of those of dense rows.
std::vector<GivenSize> padded_pitches(const LaunchPlan& plan, const LaunchSizes& launch,
                                      const std::vector<GivenSize>& given) {
  const KnownSizes sizes = launch.known(given);
  std::vector<GivenSize> padded;
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    const std::string& name = plan.sizes[i].name;
    if (!name.starts_with("ld") || !sizes.is_known[i]) continue;
    std::int64_t value = sizes.values[i];
    for (const Relation relation : {Relation::at_least, Relation::multiple_of})
      for (const DomainRule& rule : plan.domain) {
        if (rule.relation != relation || rule.lhs.text() != name) continue;
        const std::int64_t bound = launch.evaluate(rule.rhs, sizes.values);
        value = relation == Relation::at_least ? std::max(value, bound) : round_up(value, bound);
      }
    if (value != sizes.values[i]) padded.push_back({name, value});
  }
  return padded;
}

}  // namespace

std::vector<std::int64_t> sizes_of_run(const RunOperator& op, const Problem& problem, const Plan& plan,
                                       const RunFlags& flags, const DeviceInfo& device, ErrorKind refusal) {
  const LaunchSizes launch(plan.launch);
  std::vector<GivenSize> given = op.sizes(problem, flags);
  for (const GivenSize& size : flags.given_sizes) {
    const auto same = std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == size.name; });
    if (same != given.end()) {
      same->value = size.value;
    } else {
      given.push_back(size);
    }
  }
  const auto is_num_sms = [](const auto& size) { return size.name == "num_sms"; };
  if (std::any_of(plan.launch.sizes.begin(), plan.launch.sizes.end(), is_num_sms) &&
      std::none_of(given.begin(), given.end(), is_num_sms))
    given.push_back({"num_sms", device.num_sms});
  if (flags.pads_rows)
    for (const GivenSize& pitch : padded_pitches(plan.launch, launch, given)) given.push_back(pitch);
  std::optional<std::vector<std::int64_t>> sizes = launch.complete(given);
  if (!sizes) throw Error(ErrorKind::usage, fmt::format("not all sizes of {} are known", plan.op));
  if (const auto problems = launch.problems(*sizes); !problems.empty())
    throw Error(refusal, problems.front(), {problems.begin() + 1, problems.end()});
  return std::move(*sizes);
}

}  // namespace tessera::cli
