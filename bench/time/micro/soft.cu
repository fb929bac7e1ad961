// How sharply a grid turns from one that waits for the memory into one that waits for itself: CTAs read some KiB, all
// of it asked for at once, compute for some cycles, and write as much or nothing. So many of them are on a
// multiprocessor, in one round and in many.
#include <cstdio>

#include "micro.cuh"

namespace {

constexpr long kBig = 1L << 30;

template <int words, bool writes>
__global__ void __launch_bounds__(words == 16  ? 256
                                  : words == 8 ? 512
                                               : 1024) reads_and_computes(const uint4* p, uint4* to, int cycles) {
  uint4 v[words];
  const long first = static_cast<long>(blockIdx.x) * blockDim.x * words + threadIdx.x;
#pragma unroll
  for (int k = 0; k < words; ++k) v[k] = p[first + k * blockDim.x];
  unsigned sum = 0;
#pragma unroll
  for (int k = 0; k < words; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  const int all = __syncthreads_or(sum == 0x12345678);  // all of it has come
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  if constexpr (writes) {
#pragma unroll
    for (int k = 0; k < words; ++k) to[first + k * blockDim.x] = v[k];
  } else if (all == 2) {
    to[0] = v[0];
  }
}

template <int words, bool writes>
void measure(const uint4* from, uint4* to, int threads, int per_sm) {
  const auto kernel = reads_and_computes<words, writes>;
  const int shared = 227 * 1024 / per_sm - 1024 - 512;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  int fit = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, threads, shared));
  for (const long mib : {16, 64, 256})
    for (const int cycles : {0, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000}) {
      const int ctas = static_cast<int>((mib << 16) / (threads * words));
      const double us = median_us(7, true, [&] { kernel<<<ctas, threads, shared>>>(from, to, cycles); });
      printf(
          "{\"what\": \"soft\", \"writes\": %d, \"threads\": %d, \"bytes\": %d, \"ctas_per_sm\": %d, \"mib\": %ld, "
          "\"cycles\": %d, "
          "\"us\": %.2f}\n",
          writes, threads, threads * words * 16, fit, mib, cycles, us);
    }
  fflush(stdout);
}

}  // namespace

int main() {
  const uint4* const p = cleared(kBig);
  uint4* const q = cleared(kBig);
  for (const int per_sm : {1, 2, 4, 8}) {
    measure<4, true>(p, q, 256, per_sm);
    measure<4, false>(p, q, 256, per_sm);
  }
  for (const int per_sm : {1, 2}) {
    measure<4, true>(p, q, 1024, per_sm);
    measure<4, false>(p, q, 1024, per_sm);
    measure<8, true>(p, q, 512, per_sm);
    measure<16, true>(p, q, 256, per_sm);
  }
  for (const int per_sm : {8, 16}) measure<4, true>(p, q, 128, per_sm);
  return 0;
}
