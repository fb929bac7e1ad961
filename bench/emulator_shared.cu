// Kernels that live in shared memory, for what the race detector costs: bench/emulator_shared runs them.
#include <cuda_pipeline.h>

#include <cub/cub.cuh>
extern "C" __global__ void sgemm(const float* a, const float* b, float* c, int n) {
  __shared__ float sa[32][33], sb[32][33];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  float acc[4] = {};
  for (int k = 0; k < n; k += 32) {
    for (int i = ty; i < 32; i += 8) {
      sa[i][tx] = a[(blockIdx.y * 32 + i) * n + k + tx];
      sb[i][tx] = b[(k + i) * n + blockIdx.x * 32 + tx];
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 32; ++q)
      for (int i = 0; i < 4; ++i) acc[i] += sa[ty + 8 * i][q] * sb[q][tx];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) c[(blockIdx.y * 32 + ty + 8 * i) * n + blockIdx.x * 32 + tx] = acc[i];
}
extern "C" __global__ void bitonic(const float* a, const float* b, float* c, int n) {
  __shared__ float s[1024];
  int t = threadIdx.x;
  for (int i = t; i < 1024; i += 256) s[i] = a[blockIdx.x * 1024 + i];
  __syncthreads();
  for (int k = 2; k <= 1024; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      for (int i = t; i < 1024; i += 256) {
        int o = i ^ j;
        if (o > i) {
          float x = s[i], y = s[o];
          if ((x > y) == ((i & k) == 0)) {
            s[i] = y;
            s[o] = x;
          }
        }
      }
      __syncthreads();
    }
  for (int i = t; i < 1024; i += 256) c[blockIdx.x * 1024 + i] = s[i];
}
extern "C" __global__ void transpose(const float* a, const float* b, float* c, int n) {
  __shared__ float s[32][33];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  for (int r = 0; r < 16; ++r) {
    for (int i = ty; i < 32; i += 8) s[i][tx] = a[(blockIdx.y * 32 + i) * n + blockIdx.x * 32 + tx];
    __syncthreads();
    for (int i = ty; i < 32; i += 8) c[(blockIdx.x * 32 + i) * n + blockIdx.y * 32 + tx] = s[tx][i];
    __syncthreads();
  }
}
extern "C" __global__ void radix(const float* a, const float* b, float* c, int n) {
  using S = cub::BlockRadixSort<float, 256, 4>;
  __shared__ S::TempStorage t;
  float k[4];
  for (int i = 0; i < 4; ++i) k[i] = a[blockIdx.x * 1024 + threadIdx.x * 4 + i];
  S(t).Sort(k);
  for (int i = 0; i < 4; ++i) c[blockIdx.x * 1024 + threadIdx.x * 4 + i] = k[i];
}
extern "C" __global__ void reduce(const float* a, const float* b, float* c, int n) {
  __shared__ float s[256];
  for (int r = 0; r < 32; ++r) {
    s[threadIdx.x] = a[blockIdx.x * 256 + threadIdx.x] + r;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
      if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
      __syncthreads();
    }
    if (threadIdx.x == 0) c[blockIdx.x] = s[0];
    __syncthreads();
  }
}
extern "C" __global__ void histo(const float* a, const float* b, float* c, int n) {
  __shared__ unsigned h[256];
  for (int r = 0; r < 8; ++r) {
    h[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i)
      atomicAdd(&h[(int)(a[blockIdx.x * 1024 + (threadIdx.x + i * 64) % 1024] * 255) & 255], 1);
    __syncthreads();
    c[blockIdx.x * 256 + threadIdx.x] = h[threadIdx.x];
  }
}
extern "C" __global__ void cpasync(const float* a, const float* b, float* c, int n) {
  extern __shared__ float s[];
  for (int r = 0; r < 4; ++r) {
    for (int i = threadIdx.x; i < 8192; i += 256) __pipeline_memcpy_async(s + i, a + (i + r * 64) % 8192, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    c[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x * 3 % 8192];
    __syncthreads();
  }
}
extern "C" __global__ void stencil(const float* a, const float* b, float* c, int n) {
  __shared__ float s[2][34][34];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  for (int i = ty; i < 34; i += 8)
    for (int j = tx; j < 34; j += 32) s[0][i][j] = s[1][i][j] = a[(i * 34 + j) % 1024];
  __syncthreads();
  for (int r = 0; r < 32; ++r) {
    for (int i = ty; i < 32; i += 8)
      s[~r & 1][i + 1][tx + 1] =
          s[r & 1][i][tx + 1] + s[r & 1][i + 2][tx + 1] + s[r & 1][i + 1][tx] + s[r & 1][i + 1][tx + 2];
    __syncthreads();
  }
  for (int i = ty; i < 32; i += 8) c[blockIdx.x * 1024 + i * 32 + tx] = s[0][i + 1][tx + 1];
}
