// Global memory in whole vectors. Loads are of memory that nothing writes while the kernel runs (.nc), so they clobber
// nothing. Those of a stream are volatile, so that they stay where they are written, all before the first use; the
// others may be moved.
#pragma once

namespace tessera::ptx {

struct Vector4 {
  unsigned x, y, z, w;
};

// PTX ISA "ld.global.nc", PTX 7.4, sm_70. 16-byte aligned; not kept in the L1 cache.
__device__ __forceinline__ Vector4 ld_global_v4_stream(const void* p) {
  Vector4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
// PTX ISA "ld.global.nc", PTX 7.4, sm_75. 16-byte aligned. Kept in L1; the L2 fetches whole 128 bytes.
__device__ __forceinline__ Vector4 ld_global_v4_l2_128b(const void* p) {
  Vector4 v;
  asm volatile("ld.global.nc.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
// PTX ISA "ld.global.nc", PTX 7.4, sm_70. 8-byte aligned; likewise.
__device__ __forceinline__ void ld_global_v2_stream(const void* p, unsigned& x, unsigned& y) {
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p));
}
// PTX ISA "ld.global.nc", PTX 7.4, sm_75. 8-byte aligned. Kept in L1; the L2 fetches whole 128 bytes.
__device__ __forceinline__ void ld_global_v2_l2_128b(const void* p, unsigned& x, unsigned& y) {
  asm volatile("ld.global.nc.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p));
}
// PTX ISA "ld.global.nc", PTX 7.4, sm_70.
__device__ __forceinline__ unsigned ld_global_u32_stream(const void* p) {
  unsigned x;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}
// PTX ISA "ld.global.nc", PTX 3.1, any target. 16-byte aligned.
__device__ __forceinline__ Vector4 ld_global_v4(const void* p) {
  Vector4 v;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// PTX ISA "ld.global.nc", PTX 3.1, any target. 8-byte aligned.
__device__ __forceinline__ void ld_global_v2(const void* p, unsigned& x, unsigned& y) {
  asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p));
}
// PTX ISA "ld.global.nc", PTX 3.1, any target.
__device__ __forceinline__ unsigned ld_global_u32(const void* p) {
  unsigned x;
  asm("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}
// PTX ISA "ld.global.nc", PTX 3.1, any target.
__device__ __forceinline__ unsigned ld_global_u16(const void* p) {
  unsigned short x;
  asm("ld.global.nc.u16 %0, [%1];" : "=h"(x) : "l"(p));
  return x;
}
// PTX ISA "ld.global.nc", PTX 3.1, any target.
__device__ __forceinline__ unsigned ld_global_u8(const void* p) {
  unsigned x;
  asm("ld.global.nc.u8 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}

// PTX ISA "st", PTX 2.0, any target. 16-byte aligned.
__device__ __forceinline__ void st_global_v4(void* p, Vector4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// PTX ISA "st", PTX 2.0, any target. 8-byte aligned.
__device__ __forceinline__ void st_global_v2(void* p, unsigned x, unsigned y) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x), "r"(y) : "memory");
}
// PTX ISA "st", PTX 2.0, any target.
__device__ __forceinline__ void st_global_u32(void* p, unsigned x) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
// PTX ISA "st", PTX 1.0, any target.
__device__ __forceinline__ void st_global_u16(void* p, unsigned x) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(static_cast<unsigned short>(x)) : "memory");
}
// PTX ISA "st", PTX 2.0, any target.
__device__ __forceinline__ void st_global_u8(void* p, unsigned x) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// PTX ISA "red", PTX 1.2, any target: *p = max(*p, x).
__device__ __forceinline__ void red_global_max(unsigned* p, unsigned x) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

}  // namespace tessera::ptx
