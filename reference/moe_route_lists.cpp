#include "reference/moe_route_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tessera/error.h"

namespace tessera::reference {

namespace {

using Tensors = std::map<std::string, Tensor>;

/// What a person may have done in place of what was asked.
enum class ListSlip { none, by_slot, reversed, unpadded, off_by_one };

RouteLists lists_of(const MoeRouteRun& run, const Tensors& out, ListSlip slip) {
  const std::int64_t pairs = run.m * run.top_k;
  const bool is_masked = run.grouping == Grouping::masked;
  const auto experts = static_cast<std::size_t>(run.experts);
  std::vector<std::vector<std::int64_t>> of_expert(experts);
  // By token, or by slot first.
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t pair = slip == ListSlip::by_slot ? i % run.m * run.top_k + i / run.m : i;
    of_expert[static_cast<std::size_t>(out.at("topk_experts").at(pair))].push_back(pair);
  }
  if (slip == ListSlip::reversed)
    for (std::vector<std::int64_t>& list : of_expert) std::reverse(list.begin(), list.end());
  RouteLists lists;
  lists.slots.assign(static_cast<std::size_t>(pairs), -1);
  const std::int64_t rows = is_masked ? run.experts * run.rows : run.rows;
  lists.indices.assign(static_cast<std::size_t>(rows), -1);
  lists.row_weights.assign(static_cast<std::size_t>(rows), 0);
  std::int64_t start = 0;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    const auto count = static_cast<std::int64_t>(of_expert[expert].size());
    const std::int64_t kept = is_masked ? std::min(count, run.rows) : count;
    lists.counts.push_back(count);
    lists.groups.push_back(is_masked ? kept : start);
    for (std::int64_t i = 0; i < kept; ++i) {
      const std::int64_t pair = of_expert[expert][static_cast<std::size_t>(i)];
      const std::int64_t row = (is_masked ? static_cast<std::int64_t>(expert) * run.rows : start) +
                               (slip == ListSlip::off_by_one ? (i + 1) % kept : i);
      lists.slots[static_cast<std::size_t>(pair)] = row;
      if (row >= rows) continue;
      lists.indices[static_cast<std::size_t>(row)] = pair / run.top_k;
      lists.row_weights[static_cast<std::size_t>(row)] = out.at("topk_weights").view().bits_at(pair);
    }
    const std::int64_t alignment = slip == ListSlip::unpadded ? 1 : run.alignment;
    start += (count + alignment - 1) / alignment * alignment;
  }
  if (!is_masked) lists.groups.push_back(start);
  return lists;
}

/// Appends what is wrong of one list.
template <class Value>
void compare(const char* name, const Tensors& out, const std::vector<Value>& expected,
             const std::function<Value(const Tensor&, std::int64_t)>& found_at, std::vector<std::string>& problems) {
  if (!out.contains(name)) throw Error(ErrorKind::usage, fmt::format("the output {} is missing", name));
  const Tensor& found = out.at(name);
  std::int64_t wrong = 0, first = -1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found_at(found, static_cast<std::int64_t>(i)) == expected[i]) continue;
    if (wrong++ == 0) first = static_cast<std::int64_t>(i);
  }
  if (wrong > 0)
    problems.push_back(fmt::format("{}: {} of {} elements wrong; first at {}: found {}, expected {}", name, wrong,
                                   expected.size(), first, found_at(found, first),
                                   expected[static_cast<std::size_t>(first)]));
}

std::vector<std::string> problems_of(const MoeRouteRun& run, const Tensors& out, const RouteLists& lists) {
  std::vector<std::string> problems;
  const std::function<std::int64_t(const Tensor&, std::int64_t)> integer = [](const Tensor& t, std::int64_t i) {
    return static_cast<std::int64_t>(t.at(i));
  };
  const std::function<std::uint64_t(const Tensor&, std::int64_t)> bits = [](const Tensor& t, std::int64_t i) {
    return t.view().bits_at(i);
  };
  compare("groups", out, lists.groups, integer, problems);
  if (run.grouping == Grouping::contiguous) compare("counts", out, lists.counts, integer, problems);
  compare("slots", out, lists.slots, integer, problems);
  compare("indices", out, lists.indices, integer, problems);
  compare("row_weights", out, lists.row_weights, bits, problems);
  return problems;
}

}  // namespace

RouteLists route_lists(const MoeRouteRun& run, const Tensors& out) { return lists_of(run, out, ListSlip::none); }

void check_route_lists(const MoeRouteRun& run, const Tensors& out, std::vector<std::string>& problems) {
  const std::vector<std::string> wrong = problems_of(run, out, lists_of(run, out, ListSlip::none));
  problems.insert(problems.end(), wrong.begin(), wrong.end());
  if (wrong.empty()) return;
  for (const auto& [slip, cause] :
       {std::pair(ListSlip::by_slot, "pairs of an expert are in the order of slots, not of tokens"),
        std::pair(ListSlip::reversed, "pairs of an expert are in the opposite order"),
        std::pair(ListSlip::unpadded, "groups are not padded"),
        std::pair(ListSlip::off_by_one, "pairs of an expert begin one row late")})
    if (problems_of(run, out, lists_of(run, out, slip)).empty()) {
      problems.push_back(fmt::format("likely cause: {} (explains all lists)", cause));
      return;
    }
}

}  // namespace tessera::reference
