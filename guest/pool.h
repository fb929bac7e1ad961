// Pools of memory: who allocated how much of which, and what they keep. Memory itself is the device's (memory.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace tessera::guest {

/// Null: cudaDeviceSetMemPool's, of memory of the device.
cudaError_t allocate_in_pool(void** pointer, std::size_t bytes, cudaMemPool_t pool);
/// What was allocated in a pool, or with hints, has been freed.
void forget_in_pools(const void* pointer);
bool is_of_pool(const void* pointer);
void forget_hints(const void* pointer, std::size_t bytes);

}  // namespace tessera::guest
