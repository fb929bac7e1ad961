// Sums that CTAs of a cluster hand each other: loads of 16 bytes a lane from the own shared memory by its cluster
// address and from another CTA's, so many at a time, and st.async to a barrier. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a parts.cu -o parts && ./parts > parts.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kRounds = 16;
enum What { own, next_one, all_parts, sends };
constexpr const char* kNames[] = {"fetch own", "fetch next", "fetch all", "send"};

__device__ __forceinline__ unsigned mapped(unsigned address, unsigned rank) {
  unsigned to;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address), "r"(rank));
  return to;
}
__device__ __forceinline__ void meet() {
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/// A round: `kBatches` times `kAtOnce` loads of a lane that nothing waits between, or as many st.async and a wait.
template <What what, int kAtOnce, int kBatches>
__global__ void hand_over(long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 bar;
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  const unsigned base = smem_of(smem);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(smem_of(&bar))
                 : "memory");
  for (int i = threadIdx.x * 4; i < 160 * 1024; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i), "r"(0) : "memory");
  meet();
  const unsigned step = blockDim.x * 16, mine = threadIdx.x * 16;
  float sum = 0;
  long long t0 = 0;
#pragma unroll 1
  for (int round = 0; round <= kRounds; ++round) {
    if (round == 1) t0 = now();
    if constexpr (what == sends) {
      const unsigned bytes = kAtOnce * kBatches * step;
      if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_of(&bar)), "r"(bytes) : "memory");
      meet();
      const unsigned to = mapped(base + (round & 1) * 80 * 1024 + mine, (rank + 1) % size);
      const unsigned theirs = mapped(smem_of(&bar), (rank + 1) % size);
#pragma unroll
      for (int i = 0; i < kAtOnce * kBatches; ++i)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %2, %2, %2}, [%1];" ::"r"(
                         to + i * step),
                     "r"(theirs), "f"(sum)
                     : "memory");
      wait(smem_of(&bar), round & 1);
    } else {
#pragma unroll
      for (int b = 0; b < kBatches; ++b) {
        float v[kAtOnce][4];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const unsigned of = what == own ? rank : what == next_one ? (rank + 1) % size : (rank + i) % size;
          asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(v[i][0]), "=f"(v[i][1]), "=f"(v[i][2]), "=f"(v[i][3])
                       : "r"(mapped(base + mine, of) + (b * kAtOnce + i) * step)
                       : "memory");
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) sum += v[i][0] + v[i][1] + v[i][2] + v[i][3];
        asm volatile("" : "+f"(sum)::"memory");
        if (__any_sync(0xffffffff, sum != 0)) out[0] = 1;
      }
    }
  }
  const long long t1 = now();
  meet();
  if (threadIdx.x == 0) out[2 * blockIdx.x + 2] = t1 - t0;
}

long long* g_out = nullptr;

template <What what, int kAtOnce, int kBatches>
void time_one(int ctas, int share, int threads) {
  if (kAtOnce * kBatches * threads * 16 > 80 * 1024) return;
  const auto kernel = hand_over<what, kAtOnce, kBatches>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  cudaLaunchConfig_t config{};
  config.gridDim = ctas / share * share, config.blockDim = threads, config.dynamicSmemBytes = 200 * 1024;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = share, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = 1;
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(cudaLaunchKernelEx(&config, kernel, g_out));
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<double> cycles;
  for (int i = 0; i < ctas / share * share; ++i) cycles.push_back(static_cast<double>(g_out[2 * i + 2]) / kRounds);
  std::sort(cycles.begin(), cycles.end());
  const double bytes = 16. * threads * kAtOnce * kBatches;
  printf(
      "{\"what\": \"%s\", \"share\": %d, \"ctas\": %d, \"threads\": %d, \"at_once\": %d, \"batches\": %d, \"cycles\": "
      "%.0f, \"least\": %.0f, \"most\": %.0f, \"bytes_per_clock\": %.2f}\n",
      kNames[what], share, ctas / share * share, threads, kAtOnce, kBatches, cycles[cycles.size() / 2], cycles.front(),
      cycles.back(), bytes / cycles[cycles.size() / 2]);
  fflush(stdout);
}

template <What what>
void time_all(int ctas, int share) {
  for (const int threads : {128, 256}) {
    time_one<what, 1, 1>(ctas, share, threads);
    time_one<what, 2, 1>(ctas, share, threads);
    time_one<what, 4, 1>(ctas, share, threads);
    time_one<what, 8, 1>(ctas, share, threads);
    time_one<what, 16, 1>(ctas, share, threads);
    if (what != sends) time_one<what, 8, 4>(ctas, share, threads);
  }
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 8 * 1024));
  for (const int ctas : {132, 4})
    for (const int share : {2, 4}) {
      time_all<own>(ctas, share);
      time_all<next_one>(ctas, share);
      time_all<all_parts>(ctas, share);
      time_all<sends>(ctas, share);
    }
}
