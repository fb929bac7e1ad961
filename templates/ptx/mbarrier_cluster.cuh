// mbarrier between the CTAs of a cluster: arrivals that hand over what was written, waits that see it.
#pragma once

namespace tessera::ptx {

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. On a barrier of any CTA of the cluster (an address from mapa()). Release
// at cluster scope.
__device__ __forceinline__ void mbarrier_arrive_release_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.arrive", PTX 8.6, sm_90. Likewise, without an order of its own: a fence before it has one.
__device__ __forceinline__ void mbarrier_arrive_relaxed_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.try_wait", PTX 8.0, sm_90. A barrier of this CTA at which others arrive. Acquire at cluster scope.
__device__ __forceinline__ bool mbarrier_try_wait_parity_acquire_cluster(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// The retry loop around it.
__device__ __forceinline__ void mbarrier_wait_parity_acquire_cluster(unsigned barrier, unsigned parity) {
  while (!mbarrier_try_wait_parity_acquire_cluster(barrier, parity)) {
  }
}

// PTX ISA "mbarrier.try_wait", PTX 8.6, sm_90. Likewise, without an order of its own: a fence behind it has one.
__device__ __forceinline__ bool mbarrier_try_wait_parity_relaxed_cluster(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// The retry loop around it.
__device__ __forceinline__ void mbarrier_wait_parity_relaxed_cluster(unsigned barrier, unsigned parity) {
  while (!mbarrier_try_wait_parity_relaxed_cluster(barrier, parity)) {
  }
}

}  // namespace tessera::ptx
