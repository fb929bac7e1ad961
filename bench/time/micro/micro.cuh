// What the programs of this folder share: a check of calls, clocks, addresses and operands in shared memory, waiting
// for an mbarrier, numbers that look random, the median time of launches.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

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
/// Of an operand of wgmma: 128-byte swizzle, 1,024 bytes a group of 8 rows.
__device__ __forceinline__ U64 descriptor(unsigned address) {
  return ((address & 0x3FFFF) >> 4) | (U64{64} << 32) | (U64{1} << 16) | (U64{1} << 62);
}
/// Until the phase of this parity of an mbarrier in shared memory is over.
__device__ __forceinline__ void wait(unsigned bar, unsigned parity) {
  unsigned ok = 0;
  while (ok == 0)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
}
__device__ __forceinline__ unsigned mix(unsigned x) {
  x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b, x ^= x >> 16;
  return x;
}

// Device memory of zeros, kept until the program ends.
inline uint4* cleared(long bytes) {
  uint4* memory = nullptr;
  CHECK(cudaMalloc(&memory, bytes));
  CHECK(cudaMemset(memory, 0, bytes));
  return memory;
}

// Microseconds of what `f` launches, the first of times + 1 left out; the L2 overwritten before each, or not.
template <class F>
double median_us(int times, bool overwrites, F&& f) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  static void* other = nullptr;
  if (begin == nullptr) {
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaMalloc(&other, 120 << 20));
  }
  std::vector<float> all;
  for (int i = 0; i < times + 1; ++i) {
    if (overwrites) CHECK(cudaMemset(other, i, 120 << 20));
    CHECK(cudaEventRecord(begin));
    f();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 0) all.push_back(ms * 1000);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}
