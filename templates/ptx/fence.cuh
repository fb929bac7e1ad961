// Fences between the generic proxy (ordinary loads and stores) and the asynchronous one (TMA, wgmma operands).
#pragma once

namespace tessera::ptx {

// PTX ISA "fence.proxy.async", PTX 8.0, sm_90. Shared memory written before it is seen by TMA stores and wgmma after
// it.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// PTX ISA "fence.mbarrier_init", PTX 8.0, sm_90. Makes initialised barriers visible to the asynchronous proxy and
// peers.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace tessera::ptx
