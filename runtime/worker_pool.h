// Many jobs over a few threads: what `warm` compiles with.
//
// Jobs are indices, taken in order from one counter, so a hundred thousand of them cost no memory. The caller's thread
// works too; the others live as long as the call.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>

namespace tessera {

/// Calls job(0) ... job(count - 1), each once, on up to num_workers threads (at least 1), and returns when all that
/// were started have ended. A stop request keeps further jobs from starting. So does an exception: the one of the
/// lowest index is rethrown in the end. Returns how many jobs ran to their end; less than count only after a stop
/// request.
std::size_t for_each_index(std::size_t count, int num_workers, const std::function<void(std::size_t)>& job,
                           std::stop_token stop = {});

/// How many compiles at a time suit this machine: one a hardware thread, but no more than its free memory bears.
int default_num_workers();

/// The same for a machine of so many hardware threads and so many free bytes (0: unknown).
int num_workers_for(unsigned hardware_threads, std::size_t free_bytes) noexcept;

}  // namespace tessera
