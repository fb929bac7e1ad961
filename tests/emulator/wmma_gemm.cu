// A product of half or bf16 matrices with nvcuda::wmma, as kernels for beginners write it: 64 x 64 tiles, four warps of
// 32 x 32 each, A and B through padded shared memory, D = alpha * A B + beta * C by elements of the fragments.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int kTile = 64;
constexpr int kDepth = 32;
constexpr int kPad = 8;

template <class T>
__device__ void product(const T* a, const T* b, const float* c, float* d, int n, int k, float alpha, float beta) {
  __shared__ __align__(32) T sa[kTile][kDepth + kPad];  // row-major
  __shared__ __align__(32) T sb[kTile][kDepth + kPad];  // column-major: a line for each column of B
  const int row0 = blockIdx.y * kTile;
  const int column0 = blockIdx.x * kTile;
  const int warp = threadIdx.x / 32;
  const int row = warp / 2 * 32;
  const int column = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += blockDim.x) {
      sa[i / kDepth][i % kDepth] = a[(row0 + i / kDepth) * k + k0 + i % kDepth];
      sb[i / kDepth][i % kDepth] = b[(column0 + i / kDepth) * k + k0 + i % kDepth];
    }
#ifndef MISSING_BARRIER
    __syncthreads();
#endif
    for (int kk = 0; kk < kDepth; kk += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> fa[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> fb[2];
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(fa[i], &sa[row + 16 * i][kk], kDepth + kPad);
        wmma::load_matrix_sync(fb[i], &sb[column + 16 * i][kk], kDepth + kPad);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int at = (row0 + row + 16 * i) * n + column0 + column + 16 * j;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> old;
      wmma::load_matrix_sync(old, c + at, n, wmma::mem_row_major);
      for (int e = 0; e < old.num_elements; ++e) sum[i][j].x[e] = alpha * sum[i][j].x[e] + beta * old.x[e];
      wmma::store_matrix_sync(d + at, sum[i][j], n, wmma::mem_row_major);
    }
  }
}

extern "C" __global__ void gemm_half(const half* a, const half* b, const float* c, float* d, int n, int k, float alpha,
                                     float beta) {
  product(a, b, c, d, n, k, alpha, beta);
}
extern "C" __global__ void gemm_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* c, float* d, int n,
                                     int k, float alpha, float beta) {
  product(a, b, c, d, n, k, alpha, beta);
}

// One warp: D = A B for each of the other types, from global memory.
extern "C" __global__ void product_tf32(const float* a, const float* b, float* d) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(fa, a, 8);
  wmma::load_matrix_sync(fb, b, 16);
  for (int e = 0; e < fa.num_elements; ++e) fa.x[e] = wmma::__float_to_tf32(fa.x[e]);
  for (int e = 0; e < fb.num_elements; ++e) fb.x[e] = wmma::__float_to_tf32(fb.x[e]);
  wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(d, sum, 16, wmma::mem_col_major);
}
extern "C" __global__ void product_int8(const signed char* a, const signed char* b, int* d) {
  wmma::fragment<wmma::matrix_a, 32, 8, 16, signed char, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 32, 8, 16, signed char, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 32, 8, 16, int> sum;
  wmma::fill_fragment(sum, 0);
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(d, sum, 8, wmma::mem_row_major);
}
extern "C" __global__ void product_f64(const double* a, const double* b, double* d) {
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum;
  wmma::fill_fragment(sum, 0.0);
  wmma::load_matrix_sync(fa, a, 4);
  wmma::load_matrix_sync(fb, b, 8);
  wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(d, sum, 8, wmma::mem_row_major);
}
extern "C" __global__ void product_half_m8n32(const half* a, const half* b, half* d) {
  wmma::fragment<wmma::matrix_a, 8, 32, 16, half, wmma::col_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 8, 32, 16, half> sum;
  wmma::fill_fragment(sum, __float2half(0.0f));
  wmma::load_matrix_sync(fa, a, 8);
  wmma::load_matrix_sync(fb, b, 32);
  wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(d, sum, 32, wmma::mem_row_major);
}
