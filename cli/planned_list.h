// What a list of problems comes down to: its distinct kernels, named on all cores, so many problems at a time that a
// list of any length takes the memory of its kernels alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "cli/rejections.h"
#include "cli/size_check.h"

namespace tessera::cli {

/// The distinct kernels of a list, each as the first problem that has it.
struct KernelsOfList {
  std::vector<Problem> problems;
  std::vector<std::size_t> index_of;  ///< of that problem in the list
  std::vector<std::string> names;
  std::vector<std::int64_t> num_problems;  ///< of the list that have the kernel
  std::vector<Rejected> rejected;          ///< without a kernel, or with sizes that no launch takes
  std::int64_t num_tuned = 0;              ///< problems that a tuning file pinned
  bool is_whole = true;                    ///< false: stopped before all were looked at
};

/// With progress ("counting kernels"), up to a stop request. Throws Error{usage} for a typed size that no kernel has.
/// on_kernel: called for each new one.
KernelsOfList distinct_kernels(const Call& call, const ProblemList& list, SizeCheck& sizes, const std::stop_token& stop,
                               const std::function<void()>& on_kernel = {});

/// Calls with all problems in order, up to so many at a time, and the index of the first, until visit says false.
void for_each_batch(const ProblemList& list, std::size_t size,
                    const std::function<bool(const std::vector<Problem>&, std::size_t)>& visit);

}  // namespace tessera::cli
