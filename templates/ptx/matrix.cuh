// Matrices of 8 x 8 16-bit elements from shared memory to the lanes of a warp. The other way: shared.cuh.
#pragma once

namespace tessera::ptx {

// PTX ISA "ldmatrix", PTX 6.5, sm_75. Four matrices, transposed: lane t gives the address of row t % 8 of matrix t / 8,
// and gets of matrix i in register i rows 2 (t % 4) and the next of column t / 4.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned address, unsigned (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, as they lie: lane t gets of matrix i in register i columns 2 (t % 4) and the next of row t / 4.
__device__ __forceinline__ void ldmatrix_x4(unsigned address, unsigned (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Two matrices: lanes 0 to 15 give the addresses, the others' are not looked at.
__device__ __forceinline__ void ldmatrix_x2(unsigned address, unsigned& r0, unsigned& r1) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(address)
               : "memory");
}

// PTX ISA "ldmatrix", PTX 8.6, sm_100a, sm_120a. Two matrices of 16 x 16 bytes, transposed: lane t gives the address of
// row t % 16 of matrix t / 16, and gets rows 4 (t % 4) and the next three of column t / 4, then those of the column 8
// further: of the first matrix in registers 0 and 1, of the second one in 2 and 3.
__device__ __forceinline__ void ldmatrix_x2_trans_b8(unsigned address, unsigned (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m16n16.x2.trans.shared::cta.b8 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// PTX ISA "ldmatrix", PTX 8.6, sm_100a, sm_120a. Four matrices of 8 x 16 values of 4 bits, whose rows are 8 bytes and
// as many of padding: each value gets a byte, in its low bits, so that a row is 16 bytes as above.
__device__ __forceinline__ void ldmatrix_x4_b4(unsigned address, unsigned (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n16.x4.shared::cta.b8x16.b4x16_p64 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// Two matrices: lanes 0 to 15 give the addresses.
__device__ __forceinline__ void ldmatrix_x2_b4(unsigned address, unsigned& r0, unsigned& r1) {
  asm volatile("ldmatrix.sync.aligned.m8n16.x2.shared::cta.b8x16.b4x16_p64 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(address)
               : "memory");
}
// The same of 6 bits: a row is 12 bytes of values, which follow each other without gaps, and 4 of padding.
__device__ __forceinline__ void ldmatrix_x4_b6(unsigned address, unsigned (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n16.x4.shared::cta.b8x16.b6x16_p32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_b6(unsigned address, unsigned& r0, unsigned& r1) {
  asm volatile("ldmatrix.sync.aligned.m8n16.x2.shared::cta.b8x16.b6x16_p32 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(address)
               : "memory");
}

}  // namespace tessera::ptx
