// Stands in for ptx/matrix.cuh's ldmatrix of 16 x 16 bytes on targets that have none: the same lanes and registers,
// byte by byte.
namespace tessera::ptx {
namespace stand_in {

__device__ __forceinline__ unsigned ld_shared_u8(unsigned address) {
  unsigned value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

}  // namespace stand_in

// Lane t has the address of row t % 16 of matrix t / 16, and gets rows 4 (t % 4) and the next three of columns t / 4
// and t / 4 + 8.
__device__ __forceinline__ void ldmatrix_x2_trans_b8(unsigned address, unsigned (&r)[4]) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    r[i] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned row = __shfl_sync(0xffffffff, address, i / 2 * 16 + lane % 4 * 4 + j);
      r[i] |= stand_in::ld_shared_u8(row + i % 2 * 8 + lane / 4) << 8 * j;
    }
  }
}

}  // namespace tessera::ptx
