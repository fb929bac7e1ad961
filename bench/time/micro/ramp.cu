// What the memory's first bytes take, and what a kernel takes behind another one. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a ramp.cu -o ramp && ./ramp > ramp.jsonl
//
// ramp: `ctas` of so many threads, each of which loads so many pieces of 16 bytes at once, the L2 overwritten before,
// or
//       overwritten and then read. behind: a kernel that works for 20 us and stores, then one that does nothing, or
//       loads what the first one stored; both, less the first one alone.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
unsigned char* g_memory = nullptr;
unsigned* g_out = nullptr;

template <int kPieces>
__global__ void load(const uint4* from, unsigned* out) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x * kPieces + threadIdx.x;
  uint4 v[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) v[i] = from[first + std::size_t(i) * blockDim.x];
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) sum |= v[i].x | v[i].w;
  if (sum == 0x12345678) out[0] = sum;
}

__global__ void read_all(const uint4* from, std::size_t count, unsigned* out) {
  unsigned sum = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    sum |= from[i].x;
  if (sum == 0x12345678) out[0] = sum;
}

template <int kPieces>
void time_ramp(int ctas, int threads) {
  const auto one = [&](int i) {
    load<kPieces><<<ctas, threads>>>(reinterpret_cast<const uint4*>(g_memory + (std::size_t(i) << 26)), g_out);
  };
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  int turn = 0;
  const double dirty = median_us(9, true, [&] { one(turn++ % 4); });
  std::vector<float> all;
  void* other = nullptr;
  CHECK(cudaMalloc(&other, 120 << 20));
  for (int i = 0; i < 9; ++i) {
    CHECK(cudaMemset(other, i, 120 << 20));
    read_all<<<528, 512>>>(reinterpret_cast<const uint4*>(g_memory + kBytes / 2), (256 << 20) / 16, g_out);
    CHECK(cudaEventRecord(begin));
    one(i % 4);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    all.push_back(ms * 1000);
  }
  CHECK(cudaFree(other));
  std::sort(all.begin(), all.end());
  printf(
      "{\"what\": \"ramp\", \"ctas\": %d, \"threads\": %d, \"pieces\": %d, \"megabytes\": %.3f, \"us_dirty\": %.2f, "
      "\"us_clean\": %.2f}\n",
      ctas, threads, kPieces, ctas * threads * kPieces * 16. / (1 << 20), dirty, all[4]);
  fflush(stdout);
}

__global__ void work(int words, uint4* to, long long cycles) {
  extern __shared__ unsigned char smem[];
  const long long until = now() + cycles;
  if (threadIdx.x == 0) smem[0] = 1;
  while (now() < until) {
  }
  for (int i = 0; i < words; ++i)
    to[(std::size_t{blockIdx.x} * words + i) * blockDim.x + threadIdx.x] = make_uint4(1, 2, 3, 4);
}
__global__ void nothing() {}

void time_behind(int smem, int words, int what) {
  CHECK(cudaFuncSetAttribute(work, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 - 1024));
  const int ctas = smem > 114 * 1024 ? 132 : 264;
  uint4* const to = reinterpret_cast<uint4*>(g_memory);
  const auto first = [&] { work<<<ctas, 256, smem>>>(words, to, 40000); };
  const auto second = [&] {
    if (what == 1) nothing<<<256, 128>>>();
    if (what == 2) load<2><<<264 * 256 / 128 * words / 2, 128>>>(to, g_out);
    if (what == 3) load<2><<<264 * 256 / 128 * words / 2, 128>>>(to + (kBytes / 32), g_out);
  };
  const double alone = median_us(9, true, first);
  const double both = median_us(9, true, [&] {
    first();
    second();
  });
  constexpr const char* kWhat[] = {"", "nothing", "loads what the first stored", "loads of memory"};
  printf(
      "{\"what\": \"behind\", \"smem\": %d, \"stored_megabytes\": %.2f, \"second\": \"%s\", \"us_first\": %.2f, "
      "\"us_more\": %.2f}\n",
      smem, ctas * 256. * 16 * words / (1 << 20), kWhat[what], alone, both - alone);
  fflush(stdout);
}

/// A kernel of 10 us so many times, the same or two in turns.
template <int kWhich>
__global__ void busy(long long cycles) {
  const long long until = now() + cycles + kWhich;
  while (now() < until) {
  }
}

void time_chain(int times, bool is_same) {
  const double us = median_us(9, true, [&] {
    for (int i = 0; i < times; ++i)
      if (is_same || i % 2 == 0)
        busy<0><<<132, 256>>>(20000);
      else
        busy<1><<<132, 256>>>(20000);
  });
  printf("{\"what\": \"chain\", \"times\": %d, \"same\": %d, \"us\": %.2f}\n", times, is_same ? 1 : 0, us);
  fflush(stdout);
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&g_memory, kBytes));
  CHECK(cudaMalloc(&g_out, 1 << 20));
  CHECK(cudaMemset(g_memory, 0, kBytes));
  for (const bool is_same : {true, false})
    for (const int times : {1, 2, 3, 5, 9}) time_chain(times, is_same);
  for (const int smem : {1024, 100 * 1024, 200 * 1024})
    for (const int what : {1, 2, 3})
      for (const int words : {0, 2, 8})
        if (words > 0 || what == 1) time_behind(smem, words, what);
  for (const int threads : {64, 128, 256, 512, 1024})
    for (const int megabytes_16 : {4, 8, 16, 32, 64, 128, 256, 512}) {  // of 1/16 MiB
      const int pieces = megabytes_16 << 12;                            // of 16 bytes
      if (threads <= 256) time_ramp<1>(pieces / threads, threads);
      time_ramp<4>(pieces / threads / 4, threads);
      if (threads >= 256) time_ramp<8>(pieces / threads / 8, threads);
      if (threads == 512) time_ramp<16>(pieces / threads / 16, threads);
    }
  for (const int ctas : {1, 8, 32, 66, 132}) {
    time_ramp<4>(ctas, 512);
    time_ramp<16>(ctas, 512);
    time_ramp<32>(ctas, 512);
  }
}
