// cp.async: copies of 4, 8 or 16 bytes from global to shared memory, each started by a thread. They write through the
// generic proxy: before wgmma or TMA reads, a fence.proxy.async must follow in a thread that knows them to be complete.
#pragma once

namespace tessera::ptx {

// PTX ISA "cp.async", PTX 7.4, sm_80. 16 bytes, of which the first `bytes` are read and the others are zeros: with 0
// nothing is read.
__device__ __forceinline__ void cp_async_16(unsigned destination, const void* source, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes)
               : "memory");
}

// PTX ISA "cp.async", PTX 7.4, sm_80. 8 bytes, of which the first `bytes` are read and the others are zeros.
__device__ __forceinline__ void cp_async_8(unsigned destination, const void* source, int bytes) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" ::"r"(destination), "l"(source), "r"(bytes)
               : "memory");
}

// PTX ISA "cp.async.wait_all", PTX 7.0, sm_80. Until all of this thread's copies are complete.
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// PTX ISA "cp.async.mbarrier.arrive", PTX 7.1, sm_80. Arrives once when this thread's copies so far are complete; the
// arrival is one of those that the barrier was initialised with.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.expect_tx", PTX 8.0, sm_90. Announces `bytes` without an arrival.
__device__ __forceinline__ void mbarrier_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// PTX ISA "cp.async", PTX 7.4, sm_80. A number of 4 bytes, or zeros.
__device__ __forceinline__ void cp_async_4(unsigned destination, const void* source, bool is_read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source), "r"(is_read ? 4 : 0)
               : "memory");
}

// PTX ISA "cp.async.commit_group", PTX 7.0, sm_80. This thread's copies since the last one.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// PTX ISA "cp.async.wait_group", PTX 7.0, sm_80. Until all of this thread's groups but the last kPending are complete.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tessera::ptx
