#include "tessera/internal/kernel_names.h"

#include "runtime/worker_pool.h"
#include "tessera/error.h"
#include "tessera/internal/parallel.h"
#include "tessera/plan.h"

namespace tessera {

std::optional<std::vector<KernelName>> name_kernels(std::span<const Problem> problems, int num_workers,
                                                    const std::stop_token& stop) {
  std::vector<KernelName> names(problems.size());
  const std::size_t done = for_each_index(
      problems.size(), workers_or_all(num_workers),
      [&](std::size_t i) {
        try {
          names[i].kernel = planned_kernel(problems[i]);
        } catch (const Error& error) {
          names[i].rejected = error.what();
        }
      },
      stop);
  if (done < problems.size()) return std::nullopt;
  return names;
}

}  // namespace tessera
