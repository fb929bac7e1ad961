// With linked_b.cu a program of two objects (-rdc=true): functions and variables of the other object, of one's own
// under the same name, inline functions of both, pointers to functions, constants that the host sets, strings.
#include <cstdio>

#include "linked.h"

extern __device__ int table[4];
extern __constant__ int scale;
extern __device__ int twice(int x);
static __device__ int own(int x) { return x + 1; }
static __device__ int counter;
__device__ int (*chosen)(int) = twice;

__global__ void first(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = twice(table[i & 3]) + own(i) + scale + chosen(i) + Shared<3>::of(i);
  atomicAdd(&counter, 1);
  if (i == 5) printf("first says %d\n", out[i]);
}

int main() {
  int *out = nullptr, count = 0, failures = 0;
  cudaMallocManaged(&out, 32 * sizeof(int));
  set_scale(1000);
  first<<<1, 32>>>(out);
  cudaDeviceSynchronize();
  for (int i = 0; i < 32; ++i) {
    const int want = 2 * (10 * (i % 4 + 1)) + (i + 1) + 1000 + 2 * i + 3 * i;
    failures += out[i] == want ? 0 : 1;
  }
  cudaMemcpyFromSymbol(&count, counter, sizeof(count));
  failures += count == 32 ? 0 : 1;
  failures += run_second(out) == 7 * 100 + 21 + 2 ? 0 : 1;
  cudaMemcpyFromSymbol(&count, counter, sizeof(count));
  failures += count == 32 ? 0 : 1;
  std::printf("%d failures, %s\n", failures, cudaGetErrorName(cudaGetLastError()));
  return failures == 0 ? 0 : 1;
}
