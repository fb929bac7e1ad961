// What the programs of this folder share: a check of calls, clocks, addresses of shared memory, numbers that look
// random.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

// Of the runtime or of the driver: says the error's number.
#define CHECK(x)                                                    \
  do {                                                              \
    const int error_ = static_cast<int>(x);                         \
    if (error_ != 0) {                                              \
      printf("{\"failed\": %d, \"line\": %d}\n", error_, __LINE__); \
      fflush(stdout);                                               \
      exit(1);                                                      \
    }                                                               \
  } while (0)

using U64 = unsigned long long;

__device__ __forceinline__ long long now() {
  long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ U64 nanoseconds() {
  U64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ unsigned smem_of(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ unsigned mix(unsigned x) {
  x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b, x ^= x >> 16;
  return x;
}
