// Reasons come with indices alone, since most lists have none to tell: the problems that are shown are expanded again.
#include "cli/rejections.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::cli {

void report_rejected(const Call& call, const ProblemList& list, const std::vector<Rejected>& rejected) {
  constexpr std::size_t kMaxShown = 20;
  std::size_t at = 0, shown = 0;
  if (rejected.empty()) return;
  list.for_each_while([&](const Problem& problem, std::size_t product) {
    const std::size_t index = at++;
    if (rejected[shown].index != index) return true;
    const std::string place = list.place(product);
    call.note(fmt::format("rejected: {}{}{}: {}", place, place.empty() ? "" : ": ", describe(problem),
                          rejected[shown].reason));
    return ++shown < std::min(kMaxShown, rejected.size());
  });
  if (rejected.size() > kMaxShown)
    call.note(fmt::format("... and {} more", grouped(static_cast<std::int64_t>(rejected.size() - kMaxShown))));
}

void complain_of_rejected(const Call& call, std::size_t count, const std::string& first) {
  if (!call.flags().is_quiet) return;
  const std::string problems = counted(static_cast<std::int64_t>(count), "problem is", "problems are");
  call.complain(fmt::format("{} rejected, the first: {}", problems, first));
}

void print_rejections(JsonStream& json, const ProblemList& list, const std::vector<Rejected>& rejected) {
  json.begin_array("rejections");
  for (const Rejected& one : rejected)
    json.item({{"problem", one.index},
               {"place", list.place(list.product_of(static_cast<std::int64_t>(one.index)))},
               {"reason", one.reason}});
  json.end_array();
}

ExitCode rejection_code(const ProblemList& list, const std::vector<Rejected>& rejected, bool is_strict) {
  if (rejected.empty()) return kOk;
  const bool is_none_legal = static_cast<std::int64_t>(rejected.size()) == list.count();
  const bool is_explicit_refused = std::any_of(rejected.begin(), rejected.end(), [&](const Rejected& one) {
    return list.is_explicit(list.product_of(static_cast<std::int64_t>(one.index)));
  });
  return is_strict || is_none_legal || is_explicit_refused ? kUnsupported : kOk;
}

}  // namespace tessera::cli
