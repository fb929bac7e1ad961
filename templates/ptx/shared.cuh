// Stores to shared memory and loads from it by address.
#pragma once

namespace tessera::ptx {

// PTX ISA "stmatrix", PTX 7.8, sm_90. Four 8 x 8 matrices of 16-bit elements: lane t holds row t / 4, columns 2 (t % 4)
// and the next of matrix i in register i; lane t gives the address of row t % 8 of matrix t / 8.
__device__ __forceinline__ void stmatrix_x4(unsigned address, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
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

}  // namespace tessera::ptx
