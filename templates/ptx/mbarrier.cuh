// mbarrier: a 64-bit object in shared memory that counts arrivals and bytes of bulk copies.
//
// A phase ends when no arrival is pending and all announced bytes have come; then the arrivals are counted anew and the
// phase's parity flips. Waiting on parity P returns once the phase of parity P is over: on a fresh barrier waiting on 1
// passes at once and waiting on 0 blocks. A consumer of a ring starts with parity 0, a producer that waits for "empty"
// with parity 1. Addresses are those of ptx::shared_address().
#pragma once

namespace tessera::ptx {

// PTX ISA "mbarrier.init", PTX 7.0, sm_80.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// PTX ISA "mbarrier.inval", PTX 7.0, sm_80. Needed before the memory is used for anything else.
__device__ __forceinline__ void mbarrier_inval(unsigned barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. Release at CTA scope.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. Announces `bytes`, then arrives once, as one step.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// PTX ISA "mbarrier.try_wait", PTX 7.8, sm_90. May suspend the thread; false means "not yet". Acquire at CTA scope.
__device__ __forceinline__ bool mbarrier_try_wait_parity(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. On a barrier of any CTA of the cluster (an address from mapa()). Release
// at CTA scope: enough to hand back memory that only wgmma has read and only TMA will write. Release at cluster scope
// is a fence that waits for everything in flight; in a ring it took an H200 1,200 cycles a step.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The retry loop around mbarrier_try_wait_parity.
__device__ __forceinline__ void mbarrier_wait_parity(unsigned barrier, unsigned parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// PTX ISA "mbarrier.test_wait", PTX 7.1, sm_80. Never suspends. Acquire at CTA scope.
__device__ __forceinline__ bool mbarrier_test_wait_parity(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. As many arrivals as one. Release at CTA scope.
__device__ __forceinline__ void mbarrier_arrive_times(unsigned barrier, int count) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

}  // namespace tessera::ptx
