// Zeroes in shared memory, in place of a copy of a tensor that has no elements.
//
// Such a tensor's pointer may be null. TMA faults on a map of no memory even where the box lies outside of the tensor
// and would be all zeros, so nothing may be loaded through it: slots are cleared once, and handed over as they are.
#pragma once

#include "ptx/fence.cuh"
#include "ptx/shared_words.cuh"

namespace tessera::ptx {

// `bytes`, a multiple of 16, from `begin` on, by `threads` threads, of which this is one. Behind a barrier among them
// wgmma, tcgen05 and TMA may read.
__device__ __forceinline__ void clear_shared(unsigned begin, int bytes, int thread, int threads) {
#pragma unroll 1
  for (int i = 16 * thread; i < bytes; i += 16 * threads) st_shared_v4(begin + i, {0, 0, 0, 0});
  fence_proxy_async_shared();
}

}  // namespace tessera::ptx
