#include "cli/size_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/call.h"
#include "tessera/error.h"

namespace tessera::cli {

const LaunchSizes& SizeCheck::sizes_of(const Problem& problem, const std::string& kernel) {
  const bool is_new = !sizes_.has(kernel);
  const LaunchSizes& sizes = sizes_.of(problem, kernel);
  if (is_new) look_for_names(sizes);
  return sizes;
}

std::string SizeCheck::refusal(const Problem& problem, const std::string& kernel) {
  if (!flags_.is_any() && expected_sizes(problem).empty()) return {};
  const LaunchSizes& launch = sizes_of(problem, kernel);
  try {
    const std::vector<GivenSize> given = flags_.given(problem, launch);
    if (given.empty()) return {};
    const KnownSizes sizes = launch.known(given);
    if (!sizes.unknown.empty()) {
      ++num_partly_checked_;
      unknown_.insert(sizes.unknown.begin(), sizes.unknown.end());
    }
    return fmt::format("{}", fmt::join(launch.problems(sizes), "; "));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();  // an overflow on the way to a stride
  }
}

void SizeCheck::look_for_names(const LaunchSizes& sizes) {
  for (const GivenSize& size : flags_.typed()) {
    try {
      sizes.require_name(size.name);
      found_names_.insert(size.name);
    } catch (const Error& error) {
      missed_names_.emplace(size.name, error.what());
    }
  }
}

void SizeCheck::require_known_names() const {
  for (const auto& [name, complaint] : missed_names_)
    if (!found_names_.contains(name)) throw Error(ErrorKind::usage, complaint);
}

std::string SizeCheck::partly_checked() const {
  if (num_partly_checked_ == 0) return {};
  return fmt::format("{} sizes in part: what depends on {} was not checked",
                     counted(num_partly_checked_, "problem gives its", "problems give their"),
                     fmt::join(unknown_, ", "));
}

}  // namespace tessera::cli
