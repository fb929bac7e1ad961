#include "tessera/internal/parallel.h"

#include <algorithm>
#include <thread>

#include "runtime/worker_pool.h"

namespace tessera {

int workers_or_all(int num_workers) noexcept {
  return num_workers > 0 ? num_workers : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void in_parallel(std::size_t count, int num_workers, const std::function<void(std::size_t)>& job) {
  for_each_index(count, workers_or_all(num_workers), job);
}

}  // namespace tessera
