// What it takes to tell another CTA of the cluster: fences, barriers of the cluster and arrivals with release, behind
// stores of the own shared memory or none. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a fences.cu -o fences && ./fences > fences.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kRounds = 16;
enum What { nothing, fence_cta, fence_cluster, fence_gpu, barrier, barrier_relaxed, arrival, round_trip };
constexpr const char* kNames[] = {"nothing",
                                  "fence.acq_rel.cta",
                                  "fence.acq_rel.cluster",
                                  "fence.acq_rel.gpu",
                                  "barrier.cluster",
                                  "barrier.cluster relaxed",
                                  "mbarrier.arrive.release.cluster",
                                  "round trip of arrivals with release"};

template <What what, int kStores>
__global__ void tell(long long* out, float* global) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 bar;
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  const unsigned base = smem_of(smem);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(smem_of(&bar)),
                 "r"(static_cast<int>(blockDim.x / 32))
                 : "memory");
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  unsigned theirs;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(smem_of(&bar)), "r"((rank + 1) % size));
  long long t0 = 0;
#pragma unroll 1
  for (int round = 0; round <= kRounds; ++round) {
    if (round == 1) t0 = now();
#pragma unroll
    for (int i = 0; i < kStores; ++i)
      asm volatile("st.shared.v4.f32 [%0], {%1, %1, %1, %1};" ::"r"(base + threadIdx.x * 16 + i * blockDim.x * 16),
                   "f"(1.0f)
                   : "memory");
    if constexpr (what == fence_cta) asm volatile("fence.acq_rel.cta;" ::: "memory");
    if constexpr (what == fence_cluster) asm volatile("fence.acq_rel.cluster;" ::: "memory");
    if constexpr (what == fence_gpu) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if constexpr (what == barrier)
      asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if constexpr (what == barrier_relaxed)
      asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if constexpr (what == arrival || what == round_trip) {
      __syncwarp();
      if (threadIdx.x % 32 == 0)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(theirs) : "memory");
      if constexpr (what == round_trip) {
        unsigned ok = 0;
        while (ok == 0)
          asm volatile(
              "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, "
              "p;}"
              : "=r"(ok)
              : "r"(smem_of(&bar)), "r"(round & 1)
              : "memory");
      }
    }
  }
  const long long t1 = now();
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) out[blockIdx.x] = t1 - t0;
}

long long* g_out = nullptr;

template <What what, int kStores>
void time_one(int ctas, int share, int threads) {
  const auto kernel = tell<what, kStores>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  cudaLaunchConfig_t config{};
  config.gridDim = ctas / share * share, config.blockDim = threads, config.dynamicSmemBytes = 200 * 1024;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = share, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = 1;
  float* none = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(cudaLaunchKernelEx(&config, kernel, g_out, none));
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<double> cycles;
  for (int i = 0; i < ctas / share * share; ++i) cycles.push_back(static_cast<double>(g_out[i]) / kRounds);
  std::sort(cycles.begin(), cycles.end());
  printf(
      "{\"what\": \"tell\", \"how\": \"%s\", \"stores\": %d, \"share\": %d, \"ctas\": %d, \"threads\": %d, \"cycles\": "
      "%.0f}\n",
      kNames[what], kStores, share, ctas / share * share, threads, cycles[cycles.size() / 2]);
  fflush(stdout);
}
template <What what>
void time_all() {
  for (const int share : {2, 4})
    for (const int threads : {128, 256, 384}) {
      time_one<what, 0>(132, share, threads);
      time_one<what, 8>(132, share, threads);
    }
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 8 * 1024));
  time_all<nothing>();
  time_all<fence_cta>();
  time_all<fence_cluster>();
  time_all<fence_gpu>();
  time_all<barrier>();
  time_all<barrier_relaxed>();
  time_all<arrival>();
  time_all<round_trip>();
}
