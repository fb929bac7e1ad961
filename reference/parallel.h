// A loop over independent items on several threads. The first exception stops the loop and reaches the caller.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera::reference {

/// Calls body(i) once for each i < count, in any order. jobs 0: one thread per core.
void parallel_for(std::int64_t count, int jobs, const std::function<void(std::int64_t)>& body);

}  // namespace tessera::reference
