// 16 bytes of shared memory as four words.
#pragma once

namespace tessera::ptx {

struct Words4 {
  unsigned x, y, z, w;
};

// PTX ISA "ld", PTX 2.0, any target. 16-byte aligned.
__device__ __forceinline__ Words4 ld_shared_v4(unsigned address) {
  Words4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// PTX ISA "st", PTX 2.0, any target. 16-byte aligned.
__device__ __forceinline__ void st_shared_v4(unsigned address, Words4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ unsigned ld_shared_u32(unsigned address) {
  unsigned value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// PTX ISA "st", PTX 1.0, any target.
__device__ __forceinline__ void st_shared_f32(unsigned address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// PTX ISA "ld", PTX 7.8, sm_90. Of any CTA's shared memory, at an address from mapa().
__device__ __forceinline__ float ld_cluster_f32(unsigned address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// PTX ISA "ld", PTX 1.0, any target. 8-byte aligned.
__device__ __forceinline__ void ld_shared_v2(unsigned address, unsigned& low, unsigned& high) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(address) : "memory");
}

// PTX ISA "st", PTX 1.0, any target.
__device__ __forceinline__ void st_shared_u32(unsigned address, unsigned value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// PTX ISA "red", PTX 1.2, any target. Atomic; orders nothing: a barrier does.
__device__ __forceinline__ void red_shared_add(unsigned address, unsigned value) {
  asm volatile("red.relaxed.cta.shared::cta.add.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// PTX ISA "st", PTX 2.0, any target. 8-byte aligned.
__device__ __forceinline__ void st_shared_v2(unsigned address, unsigned x, unsigned y) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

}  // namespace tessera::ptx
