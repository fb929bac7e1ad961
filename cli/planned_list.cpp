#include "cli/planned_list.h"

#include <unordered_map>

#include "cli/list_progress.h"
#include "tessera/internal/kernel_names.h"

namespace tessera::cli {

void for_each_batch(const ProblemList& list, std::size_t size,
                    const std::function<bool(const std::vector<Problem>&, std::size_t)>& visit) {
  std::vector<Problem> batch;
  std::size_t start = 0;
  bool goes_on = true;
  const auto pass_on = [&] {
    goes_on = visit(batch, start);
    start += batch.size();
    batch.clear();
    return goes_on;
  };
  list.for_each_while([&](const Problem& problem, std::size_t) {
    batch.push_back(problem);
    return batch.size() < size || pass_on();
  });
  if (goes_on && !batch.empty()) pass_on();
}

KernelsOfList distinct_kernels(const Call& call, const ProblemList& list, SizeCheck& sizes, const std::stop_token& stop,
                               const std::function<void()>& on_kernel) {
  KernelsOfList kernels;
  std::unordered_map<std::string, std::size_t> numbers;
  const auto look_at = [&](std::size_t index, const Problem& problem, const KernelName& name) {
    std::string reason = name.rejected.empty() ? sizes.refusal(problem, name.kernel) : name.rejected;
    if (!reason.empty()) return kernels.rejected.push_back({index, std::move(reason)});
    const auto [number, is_new] = numbers.try_emplace(name.kernel, kernels.names.size());
    if (is_new) {
      kernels.problems.push_back(problem);
      kernels.index_of.push_back(index);
      kernels.names.push_back(name.kernel);
      kernels.num_problems.push_back(0);
      if (on_kernel) on_kernel();
    }
    ++kernels.num_problems[number->second];
  };
  ListProgress progress(call, "counting kernels", list.count());
  for_each_batch(list, kNamesAtOnce, [&](const std::vector<Problem>& problems, std::size_t start) {
    progress.at(static_cast<std::int64_t>(start));
    const auto names = name_kernels(problems, call.jobs(), stop);
    for (std::size_t i = 0; names && i < problems.size(); ++i) look_at(start + i, problems[i], (*names)[i]);
    return kernels.is_whole = names.has_value() && !stop.stop_requested();
  });
  kernels.num_tuned = list.num_tuned();
  if (kernels.is_whole) sizes.require_known_names();
  return kernels;
}

}  // namespace tessera::cli
