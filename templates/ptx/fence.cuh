// Fences between the generic proxy (ordinary loads and stores) and the asynchronous one (TMA, wgmma operands), and
// between CTAs of a cluster.
#pragma once

namespace tessera::ptx {

// PTX ISA "fence.proxy.async", PTX 8.0, sm_90. Shared memory written before it is seen by TMA stores and wgmma after
// it.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// PTX ISA "fence", PTX 8.6, sm_90. What was done to this CTA's shared memory comes before what threads of the cluster
// do that see a relaxed arrival behind the fence. It waits for loads of shared memory; unlike a release at cluster
// scope it does not wait for the L2.
__device__ __forceinline__ void fence_release_cluster_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}

// PTX ISA "fence", PTX 8.6, sm_90. Behind a relaxed wait: its counterpart.
__device__ __forceinline__ void fence_acquire_cluster_shared() {
  asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// PTX ISA "fence.mbarrier_init", PTX 8.0, sm_90. Makes initialised barriers visible to the asynchronous proxy and
// peers.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace tessera::ptx
