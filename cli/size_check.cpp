#include "cli/size_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace tessera::cli {

std::string SizeCheck::refusal(const Problem& problem) {
  const std::vector<GivenSize> given = expected_sizes(problem);
  if (given.empty()) return {};
  std::unique_ptr<Kernel>& kernel = kernels_[planned_kernel(problem)];
  if (!kernel) kernel = std::make_unique<Kernel>(make_plan(problem));
  try {
    const auto sizes = kernel->sizes.complete(given);
    if (!sizes) return {};
    return fmt::format("{}", fmt::join(kernel->sizes.problems(*sizes), "; "));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();  // an overflow on the way to a stride
  }
}

}  // namespace tessera::cli
