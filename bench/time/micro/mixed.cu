// Arithmetic of one class and of two in turn, alone and between groups of four wgmmas of its own warp: cycles of an
// instruction. One JSON object a line, as micro.cu.
//
//   python3 forms.py > wgmma_forms.h
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a mixed.cu -o mixed && ./mixed > mixed.jsonl
#include <cuda_runtime.h>

#include <cstdio>

#include "micro.cuh"
#include "wgmma_forms.h"

namespace {

constexpr int kSmem = 160 * 1024, kRounds = 64;
enum Class { logic, fma_bf16, fma_f16, fma32, choose, logic_and_bf16, logic_and_fma32, select_and_fma32 };
constexpr const char* kNames[] = {"lop3.b32",
                                  "fma.rn.bf16x2",
                                  "fma.rn.f16x2",
                                  "fma.rn.f32",
                                  "selp.b32",
                                  "lop3.b32 and fma.rn.bf16x2",
                                  "lop3.b32 and fma.rn.f32",
                                  "selp.b32 and fma.rn.f32"};

template <Class kClass>
__device__ __forceinline__ void one(unsigned& x, unsigned y, unsigned z, bool p, int i) {
  if constexpr (kClass == logic) asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(x) : "r"(y), "r"(z));
  if constexpr (kClass == fma_bf16) asm volatile("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(z));
  if constexpr (kClass == fma_f16) asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(z));
  if constexpr (kClass == fma32)
    asm volatile(
        "{.reg .f32 f, g, h; mov.b32 f, %0; mov.b32 g, %1; mov.b32 h, %2; fma.rn.f32 f, g, h, f; mov.b32 %0, f;}"
        : "+r"(x)
        : "r"(y), "r"(z));
  if constexpr (kClass == choose)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; selp.b32 %0, %0, %1, p;}"
                 : "+r"(x)
                 : "r"(y), "r"(z), "r"(int(p)));
  if constexpr (kClass == logic_and_bf16) i % 2 == 0 ? one<logic>(x, y, z, p, i) : one<fma_bf16>(x, y, z, p, i);
  if constexpr (kClass == logic_and_fma32) i % 2 == 0 ? one<logic>(x, y, z, p, i) : one<fma32>(x, y, z, p, i);
  if constexpr (kClass == select_and_fma32) i % 2 == 0 ? one<choose>(x, y, z, p, i) : one<fma32>(x, y, z, p, i);
}

template <class F, Class kClass, int kWork, bool kMultiplies>
__global__ void __launch_bounds__(256) groups(long long* out, int some) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  for (int i = threadIdx.x * 4; i < kSmem; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i), "r"(0x3F803F80 ^ (mix(i) & 0x00400040)) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  typename F::C d[F::kCount];
  for (int i = 0; i < F::kCount; ++i) d[i] = 0;
  unsigned a[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
  unsigned x[32], y[4];
  for (int i = 0; i < 32; ++i) x[i] = 0x3F803F80 + threadIdx.x;
  for (int i = 0; i < 4; ++i) y[i] = 0x3F803F80 + (threadIdx.x & 1);
  const bool p = static_cast<int>(threadIdx.x) < some;
  const U64 da = descriptor(base + threadIdx.x / 128 * 8192), b = descriptor(base + 65536);
  long long t0 = 0;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    if (round == 4) t0 = now();
    if constexpr (kMultiplies) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) F::issue(d, a, da + i % 4 * 2, b + i % 4 * 2);
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
#pragma unroll
    for (int i = 0; i < kWork; ++i) one<kClass>(x[i % 32], y[i % 4], y[(i + 1) % 4], p, i);
  }
  const long long t1 = now();
  if constexpr (kMultiplies) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  float sum = 0;
  for (int i = 0; i < F::kCount; ++i) {
    F::pin(d[i]);
    sum += d[i];
  }
  for (int i = 0; i < 32; ++i) sum += x[i];
  if (threadIdx.x % 128 == 0) out[2 * (threadIdx.x / 128)] = t1 - t0, out[2 * (threadIdx.x / 128) + 1] = sum != 0;
}

long long* g_out = nullptr;

template <class F, Class kClass, int kWork, bool kMultiplies>
void time_groups() {
  for (const int warpgroups : {1, 2}) {
    CHECK(cudaFuncSetAttribute(groups<F, kClass, kWork, kMultiplies>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kSmem));
    for (int pass = 0; pass < 2; ++pass)
      groups<F, kClass, kWork, kMultiplies><<<1, 128 * warpgroups, kSmem>>>(g_out, 77);
    CHECK(cudaDeviceSynchronize());
    printf(
        "{\"what\": \"mixed\", \"form\": \"%s\", \"class\": \"%s\", \"work\": %d, \"warpgroups\": %d, \"cycles\": "
        "%.1f}\n",
        kMultiplies ? F::kName : "alone", kNames[kClass], kWork, warpgroups,
        static_cast<double>(g_out[0]) / (kRounds - 4));
    fflush(stdout);
  }
}
template <Class kClass>
void time_all() {
  time_groups<bf16_RS_128, kClass, 64, false>();
  time_groups<bf16_RS_128, kClass, 128, false>();
  time_groups<bf16_RS_128, kClass, 64, true>();
  time_groups<bf16_RS_128, kClass, 128, true>();
  time_groups<bf16_SS_256, kClass, 128, true>();
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 4096));
  time_all<logic>();
  time_all<fma_bf16>();
  time_all<fma_f16>();
  time_all<fma32>();
  time_all<choose>();
  time_all<logic_and_bf16>();
  time_all<logic_and_fma32>();
  time_all<select_and_fma32>();
}
