// Times the products of pranjalssh/fast.cu (bf16, Hopper), each launch alone between two events, the L2 overwritten
// before it, as `tessera run` does. One JSON object a kernel and size on stdout.
//
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=[sm_90a,compute_90a] -I CHECKOUT fast_cu.cu -o fast_cu -lcuda
//   ./fast_cu REPEAT KERNEL SIZE            # 0 repeats: one launch, nothing before it
//
// The same program runs on the emulator's clock: `tessera emulate --time h200 --no-values -- ./fast_cu 0 4 4096`.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cuda/barrier>
#include <iostream>
#include <vector>

using bf16 = __nv_bfloat16;
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define cudaCheck(x)                                                                        \
  do {                                                                                      \
    const cudaError_t error_ = (x);                                                         \
    if (error_ != cudaSuccess) {                                                            \
      printf("{\"failed\": \"%s\", \"line\": %d}\n", cudaGetErrorString(error_), __LINE__); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

#include "examples/matmul/matmul_1.cuh"
#include "examples/matmul/matmul_10.cuh"
#include "examples/matmul/matmul_11.cuh"
#include "examples/matmul/matmul_12.cuh"
#include "examples/matmul/matmul_2.cuh"
#include "examples/matmul/matmul_3.cuh"
#include "examples/matmul/matmul_4.cuh"
#include "examples/matmul/matmul_5.cuh"
#include "examples/matmul/matmul_6.cuh"
#include "examples/matmul/matmul_7.cuh"
#include "examples/matmul/matmul_8.cuh"
#include "examples/matmul/matmul_9.cuh"

__global__ void random_numbers(bf16* p, long count, unsigned seed) {
  for (long i = blockIdx.x * long{blockDim.x} + threadIdx.x; i < count; i += long{gridDim.x} * blockDim.x) {
    unsigned x = static_cast<unsigned>(i) * 2654435761u + seed;
    float sum = -2;
    for (int k = 0; k < 4; ++k) {
      x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b, x ^= x >> 16;
      sum += static_cast<float>(x >> 8) * (1.0f / (1 << 24));
    }
    p[i] = __float2bfloat16(sum * 1.7f);
  }
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int repeat = atoi(argv[1]), number = atoi(argv[2]), size = atoi(argv[3]);
  const long count = long{size} * size;
  bf16 *a = nullptr, *b = nullptr, *c = nullptr;
  int* notes = nullptr;
  void* other = nullptr;
  cudaCheck(cudaMalloc(&a, count * 2));
  cudaCheck(cudaMalloc(&b, count * 2));
  cudaCheck(cudaMalloc(&c, count * 2));
  cudaCheck(cudaMalloc(&notes, sizeof(int) * 8192 * 128));
  constexpr long kOther = 256L << 20;
  if (repeat > 0) {
    cudaCheck(cudaMalloc(&other, kOther));
    random_numbers<<<1024, 256>>>(a, count, 1);
    random_numbers<<<1024, 256>>>(b, count, 2);
  }
  const auto launch = [&] {
    const int m = size, n = size, k = size;
    switch (number) {
      case 1:
        return runKernel1(m, n, k, a, b, c);
      case 2:
        return runKernel2(m, n, k, a, b, c);
      case 3:
        return runKernel3(m, n, k, a, b, c, nullptr);
      case 4:
        return runKernel4(m, n, k, a, b, c, nullptr);
      case 5:
        return runKernel5(m, n, k, a, b, c, nullptr);
      case 6:
        return runKernel6(m, n, k, a, b, c, nullptr);
      case 7:
        return runKernel7(m, n, k, a, b, c, nullptr);
      case 8:
        return runKernel8(m, n, k, a, b, c, nullptr);
      case 9:
        return runKernel9(m, n, k, a, b, c, nullptr);
      case 10:
        return runKernel10(m, n, k, a, b, c, nullptr);
      case 11:
        return runKernel11(m, n, k, a, b, c, nullptr);
      default:
        return runKernel12(m, n, k, a, b, c, nullptr);
    }
  };
  launch();
  cudaCheck(cudaDeviceSynchronize());
  if (repeat == 0) return 0;
  cudaEvent_t begin, end;
  cudaCheck(cudaEventCreate(&begin));
  cudaCheck(cudaEventCreate(&end));
  std::vector<float> all;
  for (int i = 0; i < repeat; ++i) {
    cudaCheck(cudaMemset(other, i, kOther));
    cudaCheck(cudaEventRecord(begin));
    launch();
    cudaCheck(cudaEventRecord(end));
    cudaCheck(cudaEventSynchronize(end));
    float ms = 0;
    cudaCheck(cudaEventElapsedTime(&ms, begin, end));
    all.push_back(ms * 1000);
  }
  std::sort(all.begin(), all.end());
  printf("{\"kernel\": \"fast.cu %d\", \"line\": \"%d %d\", \"time_us\": %.2f}\n", number, number, size,
         all[all.size() / 2]);
}
