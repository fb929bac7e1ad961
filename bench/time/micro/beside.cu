// What arithmetic of other warps takes while tensor cores work: warpgroups that multiply without end beside warpgroups
// that execute independent instructions of one class, each alone and both together. One JSON object a line, as
// micro.cu.
//
//   python3 forms.py > wgmma_forms.h
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a beside.cu -o beside && ./beside > beside.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"
#include "wgmma_forms.h"

namespace {

constexpr int kSmem = 96 * 1024, kRounds = 200;
enum Class { fma_class, fma_of_few, add_class, exponent, logic };
constexpr const char* kNames[] = {"fma.rn.f32, 3 registers", "fma.rn.f32, a = a * a + a", "add.f32",
                                  "ex2.approx.ftz.f32", "lop3.b32"};

/// 64 instructions, none of which waits for another of them.
template <Class kClass>
__device__ __forceinline__ void work(float (&x)[64], const float (&y)[8]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    if constexpr (kClass == fma_class)
      asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(x[i]) : "f"(y[i % 8]), "f"(y[(i / 8 + 3) % 8]));
    if constexpr (kClass == fma_of_few) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[i]));
    if constexpr (kClass == add_class) asm volatile("add.f32 %0, %0, %1;" : "+f"(x[i]) : "f"(y[i % 8]));
    if constexpr (kClass == exponent) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
    if constexpr (kClass == logic)
      asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+f"(x[i]) : "f"(y[i % 8]), "f"(y[(i + 5) % 8]));
  }
}

/// `multipliers` warpgroups multiply, the others work; out: cycles of 4 wgmmas, of 64 instructions of a warp. Each
/// counts its first rounds; one of the two goes on for so long that the other is never alone.
template <class F, Class kClass>
__global__ void __launch_bounds__(384)
    beside(int multipliers, int workers, int more_multiply, int more_work, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  for (int i = threadIdx.x * 4; i < kSmem; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i), "r"(0x3F803F80 ^ (mix(i) & 0x00400040)) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < multipliers) {
    typename F::C d[F::kCount];
    for (int i = 0; i < F::kCount; ++i) d[i] = 0;
    unsigned a[4] = {0, 0, 0, 0};
    const U64 da = descriptor(base + group * 8192), b = descriptor(base + 32768);
    long long t0 = 0, t1 = 0;
    for (int count = 0; count < kRounds + more_multiply; ++count) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 4; ++k) F::issue(d, a, da + k * 2, b + k * 2);
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (count == 2) t0 = now();
      if (count == kRounds - 1) t1 = now();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    typename F::C sum = 0;
    for (int i = 0; i < F::kCount; ++i) {
      F::pin(d[i]);
      sum += d[i];
    }
    if (threadIdx.x == 0) out[0] = 100 * (t1 - t0) / (kRounds - 3), out[4] = sum != 0;
  } else if (group < multipliers + workers) {
    float x[64], y[8];
    for (int i = 0; i < 64; ++i) x[i] = 0.5f + static_cast<float>(threadIdx.x) * 1e-3f;
    for (int i = 0; i < 8; ++i) y[i] = 0.25f + static_cast<float>(i) * 1e-3f;
    work<kClass>(x, y);
    long long t0 = now(), t1 = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds + more_work; ++round) {
      if (round == kRounds) t1 = now();
      work<kClass>(x, y);
    }
    if (more_work == 0) t1 = now();
    float sum = 0;
    for (int i = 0; i < 64; ++i) sum += x[i];
    if (threadIdx.x % 128 == 0) out[1] = 100 * (t1 - t0) / kRounds, out[5] = sum != 0;
  }
  __syncthreads();
}

long long* g_out = nullptr;

template <class F, Class kClass>
void time_beside(int multipliers, int workers) {
  CHECK(cudaFuncSetAttribute(beside<F, kClass>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  long long multiply = 0, work = 0;
  for (int pass = 0; pass < 3; ++pass) {  // the first one to load the code
    g_out[0] = g_out[1] = 0;
    beside<F, kClass>
        <<<1, 384, kSmem>>>(multipliers, workers, pass == 1 ? 16 * kRounds : 0, pass == 2 ? 16 * kRounds : 0, g_out);
    CHECK(cudaDeviceSynchronize());
    if (pass == 1) work = g_out[1];
    if (pass == 2) multiply = g_out[0];
  }
  printf(
      "{\"what\": \"arithmetic beside wgmma\", \"form\": \"%s\", \"class\": \"%s\", \"multiply\": %d, \"work\": %d, "
      "\"cycles_of_wgmma\": %.2f, "
      "\"cycles_of_instruction\": %.3f}\n",
      F::kName, kNames[kClass], multipliers, workers, static_cast<double>(multiply) / 400,
      static_cast<double>(work) / 6400);
  fflush(stdout);
}

template <class F, Class kClass>
void all_of() {
  time_beside<F, kClass>(1, 0);
  for (const int workers : {1, 2}) {
    time_beside<F, kClass>(0, workers);
    time_beside<F, kClass>(1, workers);
  }
  time_beside<F, kClass>(2, 1);
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 4096));
  all_of<bf16_SS_64, fma_class>();
  all_of<bf16_SS_128, fma_class>();
  all_of<bf16_SS_128, fma_of_few>();
  all_of<bf16_SS_128, add_class>();
  all_of<bf16_SS_128, exponent>();
  all_of<bf16_SS_128, logic>();
  all_of<e4m3_SS_128, fma_class>();
  all_of<bf16_SS_256, fma_class>();
}
