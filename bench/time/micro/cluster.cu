// What a multiprocessor gets of another's shared memory, in a cluster: loads of 4 and 16 bytes a thread, one after the
// other and many at once, stores, and bulk copies. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a cluster.cu -o cluster && ./cluster > cluster.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kBytes = 64 * 1024, kRounds = 16;
enum What { loads, loads_of_own, stores, bulk };

__device__ __forceinline__ unsigned mapped(unsigned address, unsigned rank) {
  unsigned to;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address), "r"(rank));
  return to;
}
__device__ __forceinline__ void meet() {
  __syncthreads();  // lanes that were elsewhere are back
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ unsigned rank_of() {
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return rank | size << 16;
}

/// A chain of loads in the next CTA's memory, where each word holds the address of the following one.
__global__ void chain(long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem), rank = rank_of() & 0xFFFF, size = rank_of() >> 16;
  const unsigned other = mapped(base, (rank + 1) % size);
  if (threadIdx.x < 32) {
    // In the own memory: addresses as the CTA before this one sees them.
    for (int i = 0; i < 64; ++i) {
      const unsigned next = mapped(base, rank) + (i * 37 + 37) % 64 * 128;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i * 37 % 64 * 128), "r"(next) : "memory");
    }
  }
  meet();
  if (threadIdx.x == 0) {
    unsigned at = other;
    for (int pass = 0; pass < 2; ++pass) {
      const long long t0 = now();
#pragma unroll 1
      for (int i = 0; i < 256; ++i) asm volatile("ld.shared::cluster.u32 %0, [%0];" : "+r"(at)::"memory");
      const long long t1 = now();
      if (blockIdx.x == 0) out[0] = t1 - t0, out[1] = at;
    }
  }
  meet();
}

template <What what>
__global__ void stream(long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 bar;
  const unsigned base = smem_of(smem), rank = rank_of() & 0xFFFF, size = rank_of() >> 16;
  const unsigned other = mapped(base, what == loads_of_own ? rank : (rank + 1) % size);
  for (int i = threadIdx.x * 4; i < kBytes; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i), "r"(i) : "memory");
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(smem_of(&bar))
                 : "memory");
  __syncthreads();
  asm volatile("fence.proxy.async;" ::: "memory");
  meet();
  float sum = 0;
  long long t0 = 0;
  for (int round = 0; round <= kRounds; ++round) {
    if (round == 1) t0 = now();
    if constexpr (what == bulk) {
      if (threadIdx.x == 0) {
        const unsigned own = smem_of(&bar), theirs = mapped(own, (rank + 1) % size);
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(own), "r"(kBytes / 2) : "memory");
        for (int i = 0; i < 4; ++i)
          asm volatile(
              "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                  other + kBytes / 2 + i * (kBytes / 8)),
              "r"(base + i * (kBytes / 8)), "r"(kBytes / 8), "r"(theirs)
              : "memory");
        unsigned ok = 0;
        while (ok == 0)
          asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                       : "=r"(ok)
                       : "r"(own), "r"(round & 1)
                       : "memory");
      }
    } else {
#pragma unroll 4
      for (int i = threadIdx.x * 16; i < kBytes; i += static_cast<int>(blockDim.x) * 16) {
        float4 v = {sum, sum, sum, sum};
        if constexpr (what == stores) {
          asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(other + i), "f"(v.x), "f"(v.y),
                       "f"(v.z), "f"(v.w)
                       : "memory");
        } else {
          asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                       : "r"(other + i)
                       : "memory");
          sum += v.x + v.y + v.z + v.w;
        }
      }
    }
  }
  if constexpr (what == stores) asm volatile("fence.acq_rel.cluster;" ::: "memory");
  const long long t1 = now();
  meet();
  if (threadIdx.x == 0) out[2 * blockIdx.x] = t1 - t0, out[2 * blockIdx.x + 1] = sum != 0;
}

long long* g_out = nullptr;

template <class... Args>
void launch(void (*kernel)(Args...), int ctas, int share, int threads, Args... args) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  cudaLaunchConfig_t config{};
  config.gridDim = ctas / share * share, config.blockDim = threads, config.dynamicSmemBytes = 200 * 1024;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = share, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, kernel, args...));
  CHECK(cudaDeviceSynchronize());
}

template <What what>
void time_stream(const char* name, int ctas, int share, int threads) {
  for (int pass = 0; pass < 2; ++pass) launch(stream<what>, ctas, share, threads, g_out);
  std::vector<double> cycles;
  for (int i = 0; i < ctas / share * share; ++i) cycles.push_back(static_cast<double>(g_out[2 * i]));
  std::sort(cycles.begin(), cycles.end());
  const double bytes = (what == bulk ? kBytes / 2. : kBytes) * kRounds;
  printf(
      "{\"what\": \"%s\", \"share\": %d, \"ctas\": %d, \"threads\": %d, \"cycles\": %.0f, \"bytes_per_clock\": %.2f}\n",
      name, share, ctas / share * share, threads, cycles[cycles.size() / 2], bytes / cycles[cycles.size() / 2]);
  fflush(stdout);
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 8 * 1024));
  for (const int share : {1, 2, 4, 2, 4}) {
    launch(chain, share, share, 32, g_out);
    printf("{\"what\": \"dependent loads of the next CTA\", \"share\": %d, \"latency\": %.1f}\n", share,
           static_cast<double>(g_out[0]) / 256);
    fflush(stdout);
  }
  for (const int ctas : {4, 132})
    for (const int share : {2, 4})
      for (const int threads : {128, 256, 384}) {
        time_stream<loads>("loads of 16 bytes a thread, the next CTA's", ctas, share, threads);
        time_stream<loads_of_own>("loads of 16 bytes a thread, the own by its cluster address", ctas, share, threads);
        time_stream<stores>("stores of 16 bytes a thread, the next CTA's", ctas, share, threads);
        if (threads == 128 && share == 2)
          time_stream<bulk>("bulk copies of 8 KiB to the next CTA", ctas, share, threads);
      }
}
