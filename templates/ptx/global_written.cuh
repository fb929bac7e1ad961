// Global memory that another CTA, or a kernel that is not yet over when this one begins, has written: the caller has
// ordered the write before the read. Not .nc, and volatile: a load must not move over what orders it.
#pragma once

#include "ptx/global.cuh"

namespace tessera::ptx {

// PTX ISA "ld", PTX 2.0, any target. 16-byte aligned.
__device__ __forceinline__ Vector4 ld_global_v4_written(const void* p) {
  Vector4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
// PTX ISA "ld", PTX 2.0, any target. 8-byte aligned.
__device__ __forceinline__ void ld_global_v2_written(const void* p, unsigned& x, unsigned& y) {
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p) : "memory");
}
// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ float ld_global_f32_written(const void* p) {
  float x;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
  return x;
}
// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ int ld_global_s32_written(const void* p) {
  int x;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ unsigned ld_global_u8_written(const void* p) {
  unsigned x;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

// PTX ISA "ld", PTX 6.0, sm_70. Of what somebody may be writing: from where all multiprocessors look, and nothing of it
// stays in the L1.
__device__ __forceinline__ int ld_global_s32_relaxed(const void* p) {
  int x;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

// PTX ISA "ld", PTX 6.0, sm_70. What was written before the flag's release is seen behind it.
__device__ __forceinline__ int ld_global_s32_acquire(const void* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
// PTX ISA "st", PTX 6.0, sm_70. Behind all that this thread wrote, or saw written before a barrier.
__device__ __forceinline__ void st_global_s32_release(void* p, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
// PTX ISA "st", PTX 6.0, sm_70. Where another thread writes too, in no order.
__device__ __forceinline__ void st_global_s32_relaxed(void* p, int x) {
  asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// What createpolicy makes for a fraction of 1 of L2::evict_last: other lines leave the L2 before those that were read.
inline constexpr unsigned long long kEvictLast = 0x14F0000000000000ull;

// PTX ISA "ld", PTX 7.4, sm_80. As ld_global_v4_written, with a policy for the L2.
__device__ __forceinline__ Vector4 ld_global_v4_written_with_policy(const void* p, unsigned long long policy) {
  Vector4 v;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}

// PTX ISA "st", PTX 7.4, sm_80. With a policy for the L2.
__device__ __forceinline__ void st_global_u32_with_policy(void* p, unsigned x, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(p), "r"(x), "l"(policy) : "memory");
}

}  // namespace tessera::ptx
