#include <cstdio>

#include "linked.h"

__device__ int table[4] = {10, 20, 30, 40};
__constant__ int scale = 1;
static __device__ int own(int x) { return 100 * x; }
static __device__ int counter;
__device__ __noinline__ int twice(int x) { return 2 * x; }

__global__ void second(int* out) {
  *out = own(7) + Shared<3>::of(7);
  atomicAdd(&counter, 2);
  printf("second says %d\n", *out);
}

void set_scale(int value) { cudaMemcpyToSymbol(scale, &value, sizeof(value)); }
int run_second(int* out) {
  int count = 0;
  second<<<1, 1>>>(out);
  cudaDeviceSynchronize();
  cudaMemcpyFromSymbol(&count, counter, sizeof(count));
  return *out + count;
}
