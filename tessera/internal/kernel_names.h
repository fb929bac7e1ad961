// Many Problems to the names of their kernels: the first step of what is done with a list.
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/problem.h"

namespace tessera {

/// The kernel of a Problem, by name, or why it has none.
struct KernelName {
  std::string kernel{};
  std::string rejected{};  ///< empty: there is one
};

/// Names that are worked out at a time: what progress is counted in.
inline constexpr std::size_t kNamesAtOnce = 1024;

/// One for each Problem, on so many threads (0: one a core). Nothing after a stop request.
std::optional<std::vector<KernelName>> name_kernels(std::span<const Problem> problems, int num_workers,
                                                    const std::stop_token& stop = {});

}  // namespace tessera
