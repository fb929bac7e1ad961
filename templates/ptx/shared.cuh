// Loads from and stores to shared memory by address.
#pragma once

namespace tessera::ptx {

// PTX ISA "stmatrix", PTX 7.8, sm_90. Four 8 x 8 matrices of 16-bit elements: lane t holds row t / 4, columns 2 (t % 4)
// and the next of matrix i in register i; lane t gives the address of row t % 8 of matrix t / 8.
__device__ __forceinline__ void stmatrix_x4(unsigned address, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}

// The same, transposed: a lane gives the address of column t % 8 of matrix t / 8, from its first row on.
__device__ __forceinline__ void stmatrix_x4_trans(unsigned address, unsigned r0, unsigned r1, unsigned r2,
                                                  unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// PTX ISA "st", PTX 2.0, any target.
__device__ __forceinline__ void st_shared_v2_f32(unsigned address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

// PTX ISA "ld", PTX 2.0, any target. 16 bytes.
__device__ __forceinline__ void ld_shared_v4_f32(unsigned address, float (&value)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
               : "r"(address)
               : "memory");
}

// PTX ISA "st", PTX 2.0, any target.
__device__ __forceinline__ void st_shared_v4_f32(unsigned address, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

// PTX ISA "st", PTX 1.0, any target.
__device__ __forceinline__ void st_shared_u16(unsigned address, unsigned short value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ float ld_shared_f32(unsigned address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ unsigned short ld_shared_u16(unsigned address) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

// PTX ISA "ld", PTX 1.0, any target.
__device__ __forceinline__ unsigned char ld_shared_u8(unsigned address) {
  unsigned short value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return static_cast<unsigned char>(value);
}

// PTX ISA "ld", PTX 1.0, any target. 8-byte aligned.
__device__ __forceinline__ void ld_shared_v2_f32(unsigned address, float (&value)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "r"(address) : "memory");
}

}  // namespace tessera::ptx
