// How far a warp gets ahead of shared memory: cycles until n loads have been issued, each of which takes 32 cycles (all
// lanes in one bank) or four (ldmatrix.x4); of one warp alone, and of as many warps on each sub-core as is said. One
// JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a queue.cu -o queue && ./queue > queue.jsonl
#include <cuda_runtime.h>

#include <cstdio>

#include "micro.cuh"

namespace {

enum Form { conflict, matrix, store };

template <Form form, int n>
__global__ void issue(long long* out) {
  __shared__ __align__(1024) unsigned smem[4096];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) smem[i] = i;
  __syncthreads();
  const unsigned at = smem_of(smem) + (threadIdx.x % 32) * (form == matrix ? 16 : 128);
  unsigned r[n][4] = {};
  long long t0 = 0, t1 = 0, t2 = 0;
  for (int pass = 0; pass < 2; ++pass) {
    __syncthreads();
    t0 = now();
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if constexpr (form == conflict) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(r[i][0]) : "r"(at));
      if constexpr (form == store) asm volatile("st.volatile.shared.u32 [%1], %0;" ::"r"(r[i][0]), "r"(at) : "memory");
      if constexpr (form == matrix)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[i][0]), "=r"(r[i][1]), "=r"(r[i][2]), "=r"(r[i][3])
                     : "r"(at + i * 512));  // of one address there would be one load
    }
    t1 = now();
    unsigned sum = 0;
    for (auto& one : r) sum += one[0] + one[1] + one[2] + one[3];
    // An instruction that needs them all: what nobody uses is left out by the assembler.
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(smem_of(smem) + 4 * threadIdx.x), "r"(sum) : "memory");
    t2 = now();
  }
  if (threadIdx.x % 32 == 0) out[2 * (threadIdx.x / 32)] = t1 - t0, out[2 * (threadIdx.x / 32) + 1] = t2 - t0;
}

long long* g_out = nullptr;

template <Form form, int n>
void time_issue(const char* name, int warps) {
  issue<form, n><<<1, 32 * warps>>>(g_out);
  CHECK(cudaDeviceSynchronize());
  double issued = 0, over = 0;
  for (int i = 0; i < warps; ++i)
    issued += static_cast<double>(g_out[2 * i]), over += static_cast<double>(g_out[2 * i + 1]);
  printf("{\"what\": \"%s\", \"loads\": %d, \"warps\": %d, \"issued\": %.1f, \"there\": %.1f}\n", name, n, warps,
         issued / warps, over / warps);
  fflush(stdout);
}

template <Form form>
void all_of(const char* name) {
  for (const int warps : {1, 4, 8}) {
    time_issue<form, 1>(name, warps);
    time_issue<form, 2>(name, warps);
    time_issue<form, 4>(name, warps);
    time_issue<form, 6>(name, warps);
    time_issue<form, 8>(name, warps);
    time_issue<form, 12>(name, warps);
    time_issue<form, 16>(name, warps);
    time_issue<form, 24>(name, warps);
  }
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 4096));
  all_of<conflict>("loads of one bank");
  all_of<matrix>("ldmatrix.x4");
  all_of<store>("stores to one bank");
}
