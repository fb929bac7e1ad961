// Clusters: CTAs that run at the same time and reach each other's shared memory.
#pragma once

#include "ptx/shared_words.cuh"

namespace tessera::ptx {

// PTX ISA "mapa", PTX 7.8, sm_90. Where the CTA of that rank has what lies at `address` here. Not volatile: pure.
__device__ __forceinline__ unsigned mapa(unsigned address, int rank) {
  unsigned mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// PTX ISA "barrier.cluster", PTX 8.0, sm_90. Release: what this thread wrote is seen after the others' wait.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// PTX ISA "barrier.cluster", PTX 8.0, sm_90. Orders no memory: a fence that waits for all that is in flight is left
// out.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// PTX ISA "barrier.cluster", PTX 8.0, sm_90. Until all threads of the cluster have arrived. Acquire.
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// PTX ISA "st.async", PTX 8.1, sm_90. 16 bytes into any CTA's shared memory; they count at a barrier of the same CTA.
// Both addresses are from mapa().
__device__ __forceinline__ void st_async_v4_f32(unsigned address, unsigned barrier, float x, float y, float z,
                                                float w) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
      "r"(barrier), "f"(x), "f"(y), "f"(z), "f"(w)
      : "memory");
}

// PTX ISA "st.async", PTX 8.1, sm_90. The same of words.
__device__ __forceinline__ void st_async_v4(unsigned address, unsigned barrier, const Words4& v) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
      "r"(barrier), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}

// PTX ISA "ld", PTX 7.8, sm_90. 16 bytes of any CTA's shared memory, at an address from mapa().
__device__ __forceinline__ void ld_cluster_v4_f32(unsigned address, float (&value)[4]) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
               : "r"(address)
               : "memory");
}

// PTX ISA "st.async", PTX 8.1, sm_90. 4 bytes, as st_async_v4_f32.
__device__ __forceinline__ void st_async_f32(unsigned address, unsigned barrier, float value) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %2, [%1];" ::"r"(address), "r"(barrier),
               "f"(value)
               : "memory");
}

// PTX ISA "st", PTX 7.8, sm_90. 16 bytes into any CTA's shared memory, at an address from mapa().
__device__ __forceinline__ void st_cluster_v4_f32(unsigned address, const float (&value)[4]) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(value[0]), "f"(value[1]),
               "f"(value[2]), "f"(value[3])
               : "memory");
}

}  // namespace tessera::ptx
