// Times one launch of a kernel of others as `tessera run` does it: between two events, the L2 overwritten before,
// random numbers of a normal kind, the median of the launches. A program's first argument is how many; 0 launches once
// and times nothing, which is what the emulator's clock is asked to do.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace launches {

inline int repeat = 0;

inline void check(cudaError_t error, int line) {
  if (error == cudaSuccess) return;
  std::printf("{\"failed\": \"%s\", \"line\": %d}\n", cudaGetErrorString(error), line);
  std::exit(1);
}
#define LAUNCHES_CHECK(x) launches::check(x, __LINE__)

/// As many warm-up launches and overwritten bytes as `tessera run` has.
inline constexpr int kWarmups = 3;
inline constexpr long kOther = 120L << 20;

template <typename T>
__global__ void random_numbers(T* p, long count, unsigned seed, float scale) {
  for (long i = blockIdx.x * long{blockDim.x} + threadIdx.x; i < count; i += long{gridDim.x} * blockDim.x) {
    unsigned x = static_cast<unsigned>(i) * 2654435761u + seed;
    float sum = -2;
    for (int k = 0; k < 4; ++k) {
      x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b, x ^= x >> 16;
      sum += static_cast<float>(x >> 8) * (1.0f / (1 << 24));
    }
    p[i] = T(sum * 1.7f * scale);
  }
}

/// Memory of the device; random numbers where launches are timed.
template <typename T>
T* numbers(long count, unsigned seed, float scale = 1) {
  T* p = nullptr;
  LAUNCHES_CHECK(cudaMalloc(&p, count * sizeof(T)));
  if (repeat > 0) random_numbers<T><<<1024, 256>>>(p, count, seed, scale);
  return p;
}

template <typename T>
T* zeros(long count) {
  T* p = nullptr;
  LAUNCHES_CHECK(cudaMalloc(&p, count * sizeof(T)));
  LAUNCHES_CHECK(cudaMemset(p, 0, count * sizeof(T)));
  return p;
}

/// What must be done before each launch, outside of its time, is `before`'s.
template <typename Launch, typename Before>
int time(const char* name, int argc, char** argv, Launch&& launch, Before&& before) {
  if (repeat == 0) {
    launch();
    LAUNCHES_CHECK(cudaGetLastError());
    LAUNCHES_CHECK(cudaStreamSynchronize(nullptr));
    return 0;
  }
  void* other = nullptr;
  LAUNCHES_CHECK(cudaMalloc(&other, kOther));
  cudaEvent_t begin, end;
  LAUNCHES_CHECK(cudaEventCreate(&begin));
  LAUNCHES_CHECK(cudaEventCreate(&end));
  std::vector<float> all;
  for (int i = 0; i < kWarmups + repeat; ++i) {
    before();
    LAUNCHES_CHECK(cudaMemset(other, i, kOther));
    LAUNCHES_CHECK(cudaEventRecord(begin));
    launch();
    LAUNCHES_CHECK(cudaEventRecord(end));
    LAUNCHES_CHECK(cudaEventSynchronize(end));
    LAUNCHES_CHECK(cudaGetLastError());
    float ms = 0;
    LAUNCHES_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= kWarmups) all.push_back(ms * 1000);
  }
  std::sort(all.begin(), all.end());
  std::string line;
  for (int i = 2; i < argc; ++i) line += std::string(i > 2 ? " " : "") + argv[i];
  const std::string path = argv[0];
  std::printf("{\"program\": \"%s\", \"line\": \"%s\", \"kernel\": \"%s\", \"time_us\": %.2f}\n",
              path.substr(path.rfind('/') + 1).c_str(), line.c_str(), name, all[all.size() / 2]);
  return 0;
}

template <typename Launch>
int time(const char* name, int argc, char** argv, Launch&& launch) {
  return time(name, argc, argv, launch, [] {});
}

/// The i-th argument of the program's own, from 0.
inline int argument(int argc, char** argv, int i, int otherwise) {
  return argc > 2 + i ? std::atoi(argv[2 + i]) : otherwise;
}

}  // namespace launches
