// Whole numbers in any CTA's shared memory, at addresses from mapa().
#pragma once

namespace tessera::ptx {

// PTX ISA "red", PTX 7.8, sm_90. Atomic at cluster scope; orders nothing: a barrier of the cluster does.
__device__ __forceinline__ void red_cluster_add(unsigned address, unsigned value) {
  asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// PTX ISA "ld", PTX 7.8, sm_90.
__device__ __forceinline__ unsigned ld_cluster_u32(unsigned address) {
  unsigned value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// PTX ISA "ld", PTX 7.8, sm_90. 8-byte aligned.
__device__ __forceinline__ void ld_cluster_v2(unsigned address, unsigned& x, unsigned& y) {
  asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(address) : "memory");
}

// PTX ISA "st", PTX 7.8, sm_90. 8-byte aligned.
__device__ __forceinline__ void st_cluster_v2(unsigned address, unsigned x, unsigned y) {
  asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

}  // namespace tessera::ptx
