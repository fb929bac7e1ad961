// Times the products of pranjalssh/fast.cu (bf16, Hopper): fast_cu REPEAT KERNEL SIZE (launches.cuh).
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
#include <string>
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
#include "launches.cuh"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  launches::repeat = atoi(argv[1]);
  const int number = launches::argument(argc, argv, 0, 1), size = launches::argument(argc, argv, 1, 4096);
  const long count = long{size} * size;
  bf16 *a = launches::numbers<bf16>(count, 1), *b = launches::numbers<bf16>(count, 2),
       *c = launches::zeros<bf16>(count);
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
  return launches::time(("fast.cu " + std::to_string(number)).c_str(), argc, argv, launch);
}
