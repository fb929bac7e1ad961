// Independent work over the cores, for what composes the library.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera {

/// Calls job(0) ... job(count - 1), each once, on so many threads (0: one a core), and returns when all have ended. The
/// exception of the lowest index is rethrown.
void in_parallel(std::size_t count, int num_workers, const std::function<void(std::size_t)>& job);

/// num_workers, or as many as there are cores.
int workers_or_all(int num_workers) noexcept;

}  // namespace tessera
