// Bulk copies of plain memory: bytes side by side, without a tensor map.
#pragma once

namespace tessera::ptx {

// PTX ISA "cp.async.bulk", PTX 8.6, sm_90. Global to shared memory, both 16-byte aligned, a multiple of 16 bytes;
// completes on `barrier` with them.
__device__ __forceinline__ void bulk_load(unsigned destination, const void* source, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
               "l"(source), "r"(bytes), "r"(barrier)
               : "memory");
}

// PTX ISA "cp.async.bulk", PTX 8.0, sm_90. From this CTA's shared memory to another's of the cluster.
__device__ __forceinline__ void bulk_send(unsigned destination, unsigned source, int bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "r"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

// PTX ISA "cp.async.bulk.prefetch", PTX 8.0, sm_90. Into the L2; 16-byte aligned, a multiple of 16 bytes.
__device__ __forceinline__ void bulk_prefetch(const void* source, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes) : "memory");
}

// PTX ISA "cp.async.bulk", PTX 8.6, sm_90. The same, with a policy for the L2 (ptx/tma.cuh).
__device__ __forceinline__ void bulk_load_with_policy(unsigned destination, const void* source, int bytes,
                                                      unsigned barrier, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
          destination),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

}  // namespace tessera::ptx
